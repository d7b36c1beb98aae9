package stub;

import ccm.cloudprovider.v1alpha1.ErrorReason;
import ccm.cloudprovider.v1alpha1.Fencing;
import ccm.cloudprovider.v1alpha1.LeadRequest;
import com.google.protobuf.util.Durations;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;

/** Records, from `Lead` calls, who leads for each cluster. One lock guards everything. */
final class Leadership {
    /** One leader's term. */
    final class Term {
        private final Fencing leader;
        private final Set<Runnable> watching = new LinkedHashSet<>();
        private ScheduledFuture<?> timer;
        /** By the monotonic clock; null if the term lasts until somebody else leads. */
        private Long until;
        private boolean ended;

        private Term(Fencing leader) {
            this.leader = leader;
        }

        /** Also reads the clock, since the timer fires late if the process was paused. */
        boolean over() {
            synchronized (Leadership.this) {
                return ended || until != null && clock.getAsLong() - until >= 0;
            }
        }

        /** Runs `what` when the term ends, or now if it has ended. Returns a callback that cancels this. */
        Runnable atEnd(Runnable what) {
            synchronized (Leadership.this) {
                if (!over()) {
                    watching.add(what);
                    return () -> {
                        synchronized (Leadership.this) {
                            watching.remove(what);
                        }
                    };
                }
            }
            what.run();
            return () -> {};
        }

        Refusal stale() {
            return Leadership.stale(leader);
        }

        private void lasts(LeadRequest said) {
            if (timer != null) timer.cancel(false);
            until = null;
            if (!said.hasValidFor()) return;
            long nanos = Durations.toNanos(said.getValidFor());
            if (nanos > 0 && said.hasValidUntil()) nanos = Durations.toNanos(said.getValidUntil()) - time();
            until = clock.getAsLong() + nanos;
            if (nanos <= 0) end();
            else timer = timers.schedule(this::end, nanos, TimeUnit.NANOSECONDS);
        }

        private void end() {
            synchronized (Leadership.this) {
                if (until != null && !over()) return; // Renewed while this thread waited for the lock.
                ended = true;
                watching.forEach(Runnable::run);
                watching.clear();
            }
        }

        private void endNow() {
            until = clock.getAsLong();
            end();
        }
    }

    private static final class Office {
        private Term term;
        /** Leases that another lease has replaced. */
        private final Set<String> former = new HashSet<>();
    }

    private final Map<String, Office> offices = new HashMap<>();
    private final ScheduledExecutorService timers;
    private final LongSupplier clock;
    /** The zero of the clock that leaders are told of. */
    private final long started;

    Leadership(ScheduledExecutorService timers, LongSupplier clock) {
        this.timers = timers;
        this.clock = clock;
        this.started = clock.getAsLong();
    }

    /** The nanoseconds since this process began to listen to leaders. */
    long time() {
        return clock.getAsLong() - started;
    }

    /** Starts, renews or replaces the cluster's term, or refuses a stale leader. */
    synchronized void hear(LeadRequest said) {
        Fencing leader = said.getFencing();
        Office office = offices.computeIfAbsent(said.getCluster().getUid(), uid -> new Office());
        if (office.term == null) {
            office.term = new Term(leader);
        } else {
            Fencing last = office.term.leader;
            boolean sameScope = leader.getScope().equals(last.getScope());
            boolean lower = sameScope && Long.compareUnsigned(leader.getEpoch(), last.getEpoch()) < 0;
            boolean unelected = leader.getScope().isEmpty() && !last.getScope().isEmpty() && !office.term.over();
            if (lower || unelected || office.former.contains(leader.getScope())) throw stale(leader);
            if (!leader.equals(last) || office.term.over()) {
                office.term.endNow();
                if (!sameScope && !last.getScope().isEmpty()) office.former.add(last.getScope());
                office.term = new Term(leader);
            }
        }
        office.term.lasts(said);
    }

    /** Returns the term under which a mutation runs; null if leader election is off and nobody has ever led. */
    synchronized Term admit(String cluster, Fencing caller) {
        Office office = offices.get(cluster);
        if (office == null) {
            if (caller.getEpoch() == 0) return null;
            throw stale(caller);
        }
        if (office.term.over() || !office.term.leader.equals(caller)) throw stale(caller);
        return office.term;
    }

    private static Refusal stale(Fencing caller) {
        String epoch = Long.toUnsignedString(caller.getEpoch());
        String message = "epoch " + epoch + " of lease \"" + caller.getScope() + "\" does not lead";
        return Refusal.of(ErrorReason.ERROR_REASON_STALE_LEADER, message, Map.of("epoch", epoch));
    }
}
