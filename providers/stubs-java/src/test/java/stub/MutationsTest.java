package stub;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ccm.cloudprovider.v1alpha1.ClusterRef;
import ccm.cloudprovider.v1alpha1.Fencing;
import ccm.cloudprovider.v1alpha1.LeadRequest;
import com.google.protobuf.StringValue;
import com.google.protobuf.util.Durations;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import stub.Mutations.Subject;

class MutationsTest {
    private final ExecutorService pool = Executors.newCachedThreadPool();
    private final ScheduledExecutorService timers = Executors.newSingleThreadScheduledExecutor();
    private final Leadership leadership = new Leadership(timers, System::nanoTime);
    private final Mutations mutations = new Mutations(pool);
    private final CountDownLatch go = new CountDownLatch(1);

    @AfterEach
    void end() {
        go.countDown();
        pool.shutdownNow();
        timers.shutdownNow();
    }

    private CompletableFuture<String> run(String request, String service, long revision) {
        return run(null, request, service, revision);
    }

    private CompletableFuture<String> run(Leadership.Term term, String request, String service, long revision) {
        return mutations.run(term, StringValue.of(request), List.of(new Subject("c", service, revision)), (gate, refused) -> {
            for (Refusal why : refused.values()) throw why;
            gate.call(() -> {
                go.await();
                return null;
            });
            return request;
        });
    }

    private static String reason(CompletableFuture<?> answer) {
        return Reasons.of((Refusal) assertThrows(ExecutionException.class, answer::get).getCause());
    }

    @Test
    void equalMutationsAtOnceAreOne() throws Exception {
        CompletableFuture<String> first = run("same", "s", 5);
        assertSame(first, run("same", "s", 5));
        go.countDown();
        assertEquals("same", first.get());
    }

    @Test
    void anotherMutationOfTheSameServiceWaitsOutside() throws Exception {
        CompletableFuture<String> first = run("first", "s", 5);
        assertEquals("CONCURRENT_OPERATION", reason(run("second", "s", 6)));
        CompletableFuture<String> other = run("third", "another service", 1);
        go.countDown();
        assertEquals("first", first.get());
        assertEquals("third", other.get());
    }

    @Test
    void whatWasOvertakenIsRefusedAndRevisionsAreUnsigned() throws Exception {
        go.countDown();
        assertEquals("new", run("new", "s", 5).get());
        assertEquals("STALE_REVISION", reason(run("old", "s", 4)));
        assertEquals("unnumbered", run("unnumbered", "s", 0).get());
        assertEquals("highest", run("highest", "t", -1).get());
        assertEquals("STALE_REVISION", reason(run("lower", "t", 6)));
    }

    @Test
    void whatRunsIsGivenUpWhenItsLeaderLeadsNoMore() throws Exception {
        Fencing leader = Fencing.newBuilder().setScope("lease").setEpoch(1).build();
        LeadRequest.Builder said = LeadRequest.newBuilder().setCluster(ClusterRef.newBuilder().setUid("c")).setFencing(leader);
        leadership.hear(said.setValidFor(Durations.fromSeconds(3600)).build());
        AtomicBoolean calledAgain = new AtomicBoolean();
        CountDownLatch inside = new CountDownLatch(1);
        CountDownLatch left = new CountDownLatch(1);
        Leadership.Term term = leadership.admit("c", leader);
        var answer = mutations.run(term, StringValue.of("r"), List.of(new Subject("c", "s", 1)), (gate, refused) -> {
            try {
                gate.call(() -> {
                    inside.countDown();
                    go.await();
                    return null;
                });
            } catch (Gate.ShutException woken) {
                assertThrows(Gate.ShutException.class, () -> gate.call(() -> calledAgain.getAndSet(true)));
            } finally {
                left.countDown();
            }
            return "done";
        });
        inside.await();
        leadership.hear(said.setValidFor(Durations.ZERO).build());
        assertEquals("STALE_LEADER", reason(answer));
        left.await();
        assertTrue(!calledAgain.get(), "no further call to the cloud starts");
    }
}
