package stub;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class PagerTest {
    private static final long VALID = 100;

    private final AtomicLong clock = new AtomicLong();
    private final Pager pager = new Pager(VALID, clock::get);

    private Pager.Page<String> page(String token, String... items) {
        return pager.page("list", pager.after("list", token), 2, Stream.of(items), Function.identity());
    }

    @Test
    void aWalkSeesEachItemOnce() {
        List<String> seen = new ArrayList<>();
        String token = "";
        do {
            var page = page(token, "e", "c", "a", "d", "b");
            seen.addAll(page.items());
            token = page.next();
        } while (!token.isEmpty());
        assertEquals(List.of("a", "b", "c", "d", "e"), seen);
    }

    @Test
    void aTokenCanBeUsedAgainAndHidesNothingThatCame() {
        String token = page("", "a", "b", "c").next();
        assertEquals(List.of("c"), page(token, "a", "b", "c").items());
        assertEquals(List.of("c", "d"), page(token, "a", "aa", "c", "d").items());
    }

    @Test
    void aTokenThatIsTooOldIsToldApartFromOneThatWasNeverIssued() {
        String token = page("", "a", "b", "c").next();
        clock.set(VALID + 1);
        assertEquals("PAGE_TOKEN_EXPIRED", reason(() -> pager.after("list", token)));
        assertEquals("INVALID_TOKEN", reason(() -> pager.after("another list", token)));
        assertEquals("INVALID_TOKEN", reason(() -> new Pager(VALID, clock::get).after("list", token)));
        assertEquals("INVALID_TOKEN", reason(() -> pager.after("list", "no token")));
    }

    private static String reason(Runnable what) {
        return Reasons.of(assertThrows(Refusal.class, what::run));
    }
}
