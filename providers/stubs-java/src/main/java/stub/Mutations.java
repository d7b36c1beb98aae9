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
 * Runs mutations: each to its end or to that of leadership, though its caller is gone; one at a time for each Service; none that was
 * overtaken; and equal ones once.
 */
final class Mutations {
    /** What a mutation, or one item of it, is about. The revision is unsigned; 0 is none. */
    record Subject(String cluster, String service, long revision) {
        private Key key() {
            return new Key(cluster, service);
        }
    }

    /** What is done, and which Services it must leave out because they are refused. */
    interface Work<A> {
        A run(Gate gate, Map<String, Refusal> refused);
    }

    private record Key(String cluster, String service) {}

    /** Nobody joins a mutation of a former leader: it is given up. */
    private record Same(Message request, Term term) {}

    private static final int REMEMBERED = 1 << 16;

    private final Executor pool;
    private final Map<Same, CompletableFuture<?>> running = new HashMap<>();
    private final Set<Key> busy = new HashSet<>();
    /** The highest revision that was accepted, by Service; the one that was changed longest ago goes first. */
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
     * Runs a mutation, or joins the equal one that runs.
     *
     * @param term of who asks, null where nobody is elected
     * @param request without its fencing
     * @param about its subject, or that of each item
     */
    @SuppressWarnings("unchecked") // Equal requests have answers of one type.
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
            // Before the answer: a caller that has it may change the same Service again at once.
            end(same, lanes);
            say.run();
        });
        busy.addAll(lanes);
        running.put(same, answer);
        return answer;
    }

    /** A revision counts as accepted from here on, whatever becomes of the mutation. */
    private Refusal refusal(Subject one) {
        long last = Objects.requireNonNullElse(accepted.get(one.key()), 0L);
        if (one.revision() != 0 && Long.compareUnsigned(one.revision(), last) < 0) {
            return Refusal.of(ErrorReason.ERROR_REASON_STALE_REVISION, "a newer state of service " + one.service() + " was accepted");
        }
        if (one.revision() != 0) accepted.put(one.key(), one.revision());
        if (!busy.contains(one.key())) return null;
        return Refusal.of(ErrorReason.ERROR_REASON_CONCURRENT_OPERATION, "another operation runs on service " + one.service());
    }

    private synchronized void end(Same same, Set<Key> lanes) {
        busy.removeAll(lanes);
        running.remove(same);
    }
}
