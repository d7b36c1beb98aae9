package stub;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ccm.cloudprovider.v1alpha1.ClusterRef;
import ccm.cloudprovider.v1alpha1.Fencing;
import ccm.cloudprovider.v1alpha1.LeadRequest;
import com.google.protobuf.util.Durations;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class LeadershipTest {
    private static final long HOUR = 3600;

    private final ScheduledExecutorService timers = Executors.newSingleThreadScheduledExecutor();
    private final AtomicLong clock = new AtomicLong();
    private final Leadership leadership = new Leadership(timers, clock::get);

    @AfterEach
    void end() {
        timers.shutdownNow();
    }

    private static Fencing leader(String scope, long epoch) {
        return Fencing.newBuilder().setScope(scope).setEpoch(epoch).build();
    }

    private void hear(Fencing leader, long seconds) {
        leadership.hear(said(leader).setValidFor(Durations.fromSeconds(seconds)).build());
    }

    private static LeadRequest.Builder said(Fencing leader) {
        return LeadRequest.newBuilder().setCluster(ClusterRef.newBuilder().setUid("c")).setFencing(leader);
    }

    private void assertStale(Runnable what) {
        assertEquals("STALE_LEADER", Reasons.of(assertThrows(Refusal.class, what::run)));
    }

    @Test
    void nobodyNeedsToLeadWhereElectionIsOff() {
        assertNull(leadership.admit("c", leader("", 0)));
        assertStale(() -> leadership.admit("c", leader("lease", 1)));
    }

    @Test
    void onlyThePresentLeaderIsAdmitted() {
        hear(leader("lease", 2), HOUR);
        assertFalse(leadership.admit("c", leader("lease", 2)).over());
        assertStale(() -> leadership.admit("c", leader("lease", 1)));
        assertStale(() -> leadership.admit("c", leader("", 0)));
        assertNull(leadership.admit("another cluster", leader("", 0)));
    }

    @Test
    void aFormerLeaderNeverComesBack() {
        hear(leader("lease", 2), HOUR);
        assertStale(() -> hear(leader("lease", 1), HOUR));
        assertStale(() -> hear(leader("", 0), HOUR));
        hear(leader("new lease", 1), HOUR);
        assertStale(() -> hear(leader("lease", 3), HOUR));
        // Epochs are unsigned: this one is the highest.
        hear(leader("new lease", -1), HOUR);
        assertStale(() -> hear(leader("new lease", 2), HOUR));
    }

    @Test
    void aTermEndsByTheClockThoughItsTimerIsLate() {
        hear(leader("lease", 1), HOUR);
        Leadership.Term term = leadership.admit("c", leader("lease", 1));
        clock.set(TimeUnit.SECONDS.toNanos(HOUR));
        assertTrue(term.over());
        assertStale(() -> leadership.admit("c", leader("lease", 1)));
        hear(leader("lease", 1), HOUR);
        assertFalse(leadership.admit("c", leader("lease", 1)).over());
        assertTrue(term.over(), "a term that has ended does not start again");
    }

    @Test
    void whoeverWatchesATermIsToldOfItsEnd() {
        AtomicBoolean told = new AtomicBoolean();
        hear(leader("lease", 1), HOUR);
        leadership.admit("c", leader("lease", 1)).atEnd(() -> told.set(true));
        hear(leader("lease", 1), HOUR);
        assertFalse(told.get(), "a renewal ends nothing");
        hear(leader("lease", 1), 0);
        assertTrue(told.get());
    }

    @Test
    void withoutATimeATermLastsUntilSomebodyElseLeads() {
        leadership.hear(said(leader("", 0)).build());
        clock.set(Long.MAX_VALUE / 2);
        assertFalse(leadership.admit("c", leader("", 0)).over());
    }
}
