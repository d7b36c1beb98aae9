package stub;

import ccm.cloudprovider.v1alpha1.ErrorReason;
import com.google.protobuf.Message;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import stub.Leadership.Term;

/**
 * Runs mutations. Each runs until it is done or its term ends, even if its caller disconnects. One runs at a time for each Service,
 * equal requests share one run, and a stale revision is refused.
 */
final class Mutations {
    /** The Service that a mutation, or one of its items, changes. The revision is unsigned; 0 means none. */
    record Subject(String cluster, String service, long revision) {
        private Key key() {
            return new Key(cluster, service);
        }
    }

    /** The work of a mutation, which must skip the refused Services. */
    interface Work<A> {
        A run(Gate gate, Map<String, Refusal> refused);
    }

    private record Key(String cluster, String service) {}

    /** Includes the term, so that nobody joins a former leader's mutation, which is being abandoned. */
    private record Same(Message request, Term term) {}

    private static final int REMEMBERED = 1 << 16;

    private final Executor pool;
    private final Map<Same, CompletableFuture<?>> running = new HashMap<>();
    private final Set<Key> busy = new HashSet<>();
    /** The highest accepted revision of each Service; evicts the least recently used. */
    private final Map<Key, Long> accepted = new LinkedHashMap<>(16, 0.75f, true) {
        @Override
        protected boolean removeEldestEntry(Map.Entry<Key, Long> eldest) {
            return size() > REMEMBERED;
        }
    };

    Mutations(Executor pool) {
        this.pool = pool;
    }

    /**
     * Runs a mutation, or joins an equal one in flight.
     *
     * @param term the caller's; null if leader election is off
     * @param request without its fencing
     * @param about the subject of the request, or of each item
     */
    @SuppressWarnings("unchecked") // Equal requests have the same type of answer.
    synchronized <A> CompletableFuture<A> run(Term term, Message request, List<Subject> about, Work<A> work) {
        Same same = new Same(request, term);
        CompletableFuture<?> joined = running.get(same);
        if (joined != null) return (CompletableFuture<A>) joined;

        Map<String, Refusal> refused = new HashMap<>();
        Set<Key> lanes = new HashSet<>();
        for (Subject one : about) {
            Refusal why = refusal(one);
            if (why != null) refused.put(one.service(), why);
            else lanes.add(one.key());
        }
        CompletableFuture<A> answer = new CompletableFuture<>();
        Gate gate = new Gate(() -> term != null && term.over());
        Runnable forget = term == null ? () -> {} : term.atEnd(() -> {
            gate.shut();
            answer.completeExceptionally(term.stale());
        });
        pool.execute(() -> {
            Runnable say;
            try {
                A done = work.run(gate, refused);
                say = () -> answer.complete(done);
            } catch (Gate.ShutException over) {
                say = () -> answer.completeExceptionally(term.stale());
            } catch (Throwable error) {
                say = () -> answer.completeExceptionally(error);
            }
            forget.run();
            // Before answering: the caller may then change the same Service again at once.
            end(same, lanes);
            say.run();
        });
        busy.addAll(lanes);
        running.put(same, answer);
        return answer;
    }

    /** Accepts the revision even if the mutation then fails. */
    private Refusal refusal(Subject one) {
        long last = Objects.requireNonNullElse(accepted.get(one.key()), 0L);
        if (one.revision() != 0 && Long.compareUnsigned(one.revision(), last) < 0) {
            return Refusal.of(ErrorReason.ERROR_REASON_STALE_REVISION, "a newer revision of service " + one.service() + " was accepted");
        }
        if (one.revision() != 0) accepted.put(one.key(), one.revision());
        if (!busy.contains(one.key())) return null;
        return Refusal.of(ErrorReason.ERROR_REASON_CONCURRENT_OPERATION, "another operation is running on service " + one.service());
    }

    private synchronized void end(Same same, Set<Key> lanes) {
        busy.removeAll(lanes);
        running.remove(same);
    }
}
