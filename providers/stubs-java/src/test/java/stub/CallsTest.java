package stub;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.stub.ServerCallStreamObserver;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class CallsTest {
    /** A call whose caller can disconnect. */
    private static final class Call extends ServerCallStreamObserver<String> {
        private final CompletableFuture<String> answer = new CompletableFuture<>();
        private Runnable gone;

        @Override
        public void onNext(String value) {
            answer.complete(value);
        }

        @Override
        public void onError(Throwable error) {
            answer.completeExceptionally(error);
        }

        @Override
        public void setOnCancelHandler(Runnable handler) {
            gone = handler;
        }

        @Override
        public boolean isCancelled() {
            return false;
        }

        @Override
        public boolean isReady() {
            return true;
        }

        @Override
        public void onCompleted() {}

        @Override
        public void setCompression(String compression) {}

        @Override
        public void setOnReadyHandler(Runnable handler) {}

        @Override
        public void request(int count) {}

        @Override
        public void setMessageCompression(boolean enable) {}

        @Override
        public void disableAutoInboundFlowControl() {}
    }

    private final ExecutorService pool = Executors.newCachedThreadPool();
    private final Calls calls = new Calls(pool);
    private final Call call = new Call();

    @AfterEach
    void end() {
        pool.shutdownNow();
    }

    @Test
    void aReadEndsInTheCloudWhenItsCallerIsGoneOrItsDeadlinePassed() throws Exception {
        CountDownLatch inside = new CountDownLatch(1);
        CompletableFuture<Throwable> ended = new CompletableFuture<>();
        calls.read(call, gate -> {
            try {
                return gate.call(() -> {
                    inside.countDown();
                    new CountDownLatch(1).await();
                    return "late";
                });
            } catch (RuntimeException error) {
                ended.complete(error);
                throw error;
            }
        });
        inside.await();
        call.gone.run();
        assertEquals(Gate.ShutException.class, ended.get().getClass());
    }

    @Test
    void aMutationGoesOnWhenItsCallerIsGone() throws Exception {
        CompletableFuture<String> running = new CompletableFuture<>();
        calls.answer(call, () -> running);
        call.gone.run();
        running.complete("done");
        assertEquals("done", call.answer.get());
    }

    @Test
    void ofADefectOnlyIsToldThatThereIsOne() {
        calls.read(call, gate -> {
            throw new IllegalStateException("with a detail");
        });
        Throwable told = assertThrows(ExecutionException.class, call.answer::get).getCause();
        assertEquals("INTERNAL_ERROR", Reasons.of(told));
        assertTrue(!told.getMessage().contains("detail"));
    }

    @Test
    void whoComesDuringAStopIsToldSo() {
        pool.shutdown();
        calls.read(call, gate -> "never");
        assertEquals("SHUTTING_DOWN", Reasons.of(assertThrows(ExecutionException.class, call.answer::get).getCause()));
    }
}
