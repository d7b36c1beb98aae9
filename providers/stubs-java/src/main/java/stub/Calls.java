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

/** Answers calls: with what the work says, or with an error of the contract; of a defect only that there is one. */
final class Calls {
    private static final Logger LOG = System.getLogger("stub");

    private final Executor pool;

    Calls(Executor pool) {
        this.pool = pool;
    }

    /** A read: given up when its caller is gone or its deadline passes, which gRPC tells alike. */
    <A> void read(StreamObserver<A> out, Function<Gate, A> work) {
        Gate gate = new Gate(() -> false);
        answer(out, gate::shut, () -> CompletableFuture.supplyAsync(() -> work.apply(gate), pool));
    }

    /** A mutation, or what is answered from memory: whoever waits for it may go. */
    <A> void answer(StreamObserver<A> out, Supplier<CompletableFuture<A>> begin) {
        answer(out, () -> {}, begin);
    }

    private static <A> void answer(StreamObserver<A> out, Runnable gone, Supplier<CompletableFuture<A>> begin) {
        // Without a handler, answering a call that is gone would throw.
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
        if (error instanceof Gate.ShutException) return; // gRPC has answered already.
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
