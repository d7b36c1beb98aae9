package stub;

import ccm.cloudprovider.v1alpha1.ErrorReason;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.function.Function;
import java.util.function.Supplier;

/** Answers calls with the result of the work or with an error of the contract. The details of a defect go to the log, not to the caller. */
final class Calls {
    private static final Logger LOG = System.getLogger("stub");

    private final Executor pool;

    Calls(Executor pool) {
        this.pool = pool;
    }

    /** Runs a read, which ends when its caller disconnects or its deadline passes; gRPC reports both as a cancellation. */
    <A> void read(StreamObserver<A> out, Function<Gate, A> work) {
        Gate gate = new Gate(() -> false);
        answer(out, gate::shut, () -> CompletableFuture.supplyAsync(() -> work.apply(gate), pool));
    }

    /** Answers a mutation, or a call that needs only memory: the work does not stop when the caller disconnects. */
    <A> void answer(StreamObserver<A> out, Supplier<CompletableFuture<A>> begin) {
        answer(out, () -> {}, begin);
    }

    private static <A> void answer(StreamObserver<A> out, Runnable gone, Supplier<CompletableFuture<A>> begin) {
        // Without a handler, answering a cancelled call throws.
        ((ServerCallStreamObserver<A>) out).setOnCancelHandler(gone);
        CompletableFuture<A> answer;
        try {
            answer = begin.get();
        } catch (RuntimeException error) {
            answer = CompletableFuture.failedFuture(error);
        }
        answer.whenComplete((done, error) -> {
            if (error == null) {
                out.onNext(done);
                out.onCompleted();
            } else {
                fail(out, error instanceof CompletionException ? error.getCause() : error);
            }
        });
    }

    private static void fail(StreamObserver<?> out, Throwable error) {
        if (error instanceof Gate.ShutException) return; // gRPC has already ended the call.
        Refusal told;
        if (error instanceof Refusal refusal) {
            told = refusal;
        } else if (error instanceof RejectedExecutionException) {
            told = Refusal.of(ErrorReason.ERROR_REASON_SHUTTING_DOWN, "the provider is stopping");
        } else {
            LOG.log(Level.ERROR, "the method failed", error);
            told = Refusal.of(ErrorReason.ERROR_REASON_INTERNAL_ERROR, "internal error");
        }
        out.onError(told.toStatus());
    }
}
