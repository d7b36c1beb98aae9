package stub;

import ccm.cloudprovider.v1alpha1.ErrorReason;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Comparator;
import java.util.List;
import java.util.function.Function;
import java.util.stream.Stream;

/**
 * Cuts lists into pages by key. It keeps no state between pages, and a walk sees each item that exists throughout it exactly once. A token
 * holds its list and the last key of its page; it is no secret, and a token of another list or cluster is INVALID_TOKEN.
 */
final class Pager {
    /** A page, and the token of the next page, which is empty after the last. */
    record Page<T>(List<T> items, String next) {}

    private Pager() {}

    /** The key after which the page begins, empty for the first page. Call this first, so that a bad token costs no call to the cloud. */
    static String after(String list, String token) {
        if (token.isEmpty()) return "";
        String plain = "";
        try {
            plain = new String(Base64.getUrlDecoder().decode(token), StandardCharsets.UTF_8);
        } catch (IllegalArgumentException error) {
            // Refused below.
        }
        if (plain.startsWith(list + "\0")) return plain.substring(list.length() + 1);
        throw Refusal.of(ErrorReason.ERROR_REASON_INVALID_TOKEN, "the page token is of no page of this list");
    }

    /** The page that begins after a key. Keys are unique, sort as strings, and are shorter than 5,000 bytes. */
    static <T> Page<T> page(String list, String after, int size, Stream<T> items, Function<T, String> key) {
        List<T> rest = items.filter(one -> key.apply(one).compareTo(after) > 0).sorted(Comparator.comparing(key)).limit(size + 1L).toList();
        if (rest.size() <= size) return new Page<>(rest, "");
        List<T> page = rest.subList(0, size);
        byte[] token = (list + "\0" + key.apply(page.get(size - 1))).getBytes(StandardCharsets.UTF_8);
        return new Page<>(page, Base64.getUrlEncoder().withoutPadding().encodeToString(token));
    }
}
