package stub;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class PagerTest {
    private static Pager.Page<String> page(String token, String... items) {
        return Pager.page("list", Pager.after("list", token), 2, Stream.of(items), Function.identity());
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
    void aTokenThatLeadsNowhereIsRefused() {
        String token = page("", "a", "b", "c").next();
        assertEquals("INVALID_TOKEN", reason(() -> Pager.after("another list", token)));
        assertEquals("INVALID_TOKEN", reason(() -> Pager.after("list", "no token")));
    }

    private static String reason(Runnable what) {
        return Reasons.of(assertThrows(Refusal.class, what::run));
    }
}
