package stub;

import ccm.cloudprovider.v1alpha1.ErrorReason;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.Base64;
import java.util.Comparator;
import java.util.List;
import java.util.function.Function;
import java.util.function.LongSupplier;
import java.util.stream.Stream;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * Cuts lists into pages by key. It keeps no state between pages, and a walk sees each item that exists throughout it exactly once. A token
 * holds the last key of its page and the time, signed with this process's secret: a token of another process, list or cluster is INVALID_TOKEN.
 */
final class Pager {
    /** A page, and the token of the next page, which is empty after the last. */
    record Page<T>(List<T> items, String next) {}

    private static final String ALGORITHM = "HmacSHA256";
    private static final int SIGNATURE = 32;

    private final SecretKeySpec secret;
    private final long validNanos;
    private final LongSupplier clock;

    Pager(long validNanos, LongSupplier clock) {
        byte[] key = new byte[SIGNATURE];
        new SecureRandom().nextBytes(key);
        secret = new SecretKeySpec(key, ALGORITHM);
        this.validNanos = validNanos;
        this.clock = clock;
    }

    /** The key after which the page begins, empty for the first page. Call this first, so that a bad token costs no call to the cloud. */
    String after(String list, String token) {
        if (token.isEmpty()) return "";
        byte[] all;
        try {
            all = Base64.getUrlDecoder().decode(token);
        } catch (IllegalArgumentException error) {
            throw neverIssued();
        }
        if (all.length < SIGNATURE + Long.BYTES) throw neverIssued();
        byte[] claim = Arrays.copyOfRange(all, SIGNATURE, all.length);
        if (!MessageDigest.isEqual(sign(list, claim), Arrays.copyOf(all, SIGNATURE))) throw neverIssued();
        long issued = ByteBuffer.wrap(claim).getLong();
        if (clock.getAsLong() - issued > validNanos) throw Refusal.of(ErrorReason.ERROR_REASON_PAGE_TOKEN_EXPIRED, "the page token has expired");
        return new String(claim, Long.BYTES, claim.length - Long.BYTES, StandardCharsets.UTF_8);
    }

    /** The page that begins after a key. Keys are unique, sort as strings, and are shorter than 600 bytes. */
    <T> Page<T> page(String list, String after, int size, Stream<T> items, Function<T, String> key) {
        List<T> rest = items.filter(one -> key.apply(one).compareTo(after) > 0).sorted(Comparator.comparing(key)).limit(size + 1L).toList();
        if (rest.size() <= size) return new Page<>(rest, "");
        List<T> page = rest.subList(0, size);
        byte[] last = key.apply(page.get(size - 1)).getBytes(StandardCharsets.UTF_8);
        byte[] claim = ByteBuffer.allocate(Long.BYTES + last.length).putLong(clock.getAsLong()).put(last).array();
        byte[] token = ByteBuffer.allocate(SIGNATURE + claim.length).put(sign(list, claim)).put(claim).array();
        return new Page<>(page, Base64.getUrlEncoder().withoutPadding().encodeToString(token));
    }

    private byte[] sign(String list, byte[] claim) {
        try {
            Mac mac = Mac.getInstance(ALGORITHM);
            mac.init(secret);
            mac.update((list + "\0").getBytes(StandardCharsets.UTF_8));
            return mac.doFinal(claim);
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException("every Java has " + ALGORITHM, error);
        }
    }

    private static Refusal neverIssued() {
        return Refusal.of(ErrorReason.ERROR_REASON_INVALID_TOKEN, "this process never issued the page token");
    }
}
