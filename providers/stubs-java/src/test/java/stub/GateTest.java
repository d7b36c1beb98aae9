package stub;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;
import stub.cloud.CloudException;

class GateTest {
    private final AtomicBoolean called = new AtomicBoolean();

    @Test
    void nothingPassesAShutGate() {
        Gate gate = new Gate(() -> false);
        gate.shut();
        assertThrows(Gate.ShutException.class, () -> gate.call(() -> called.getAndSet(true)));
        assertThrows(Gate.ShutException.class, () -> new Gate(() -> true).call(() -> called.getAndSet(true)));
        assertFalse(called.get());
    }

    @Test
    void whoWaitsInsideIsWoken() throws InterruptedException {
        Gate gate = new Gate(() -> false);
        CountDownLatch inside = new CountDownLatch(1);
        var waiting = CompletableFuture.supplyAsync(() -> gate.call(() -> {
            inside.countDown();
            new CountDownLatch(1).await();
            return true;
        }));
        inside.await();
        gate.shut();
        assertEquals(Gate.ShutException.class, assertThrows(ExecutionException.class, waiting::get).getCause().getClass());
    }

    @Test
    void whatTheCloudRefusesIsSaidInTheContractsWords() {
        Refusal refusal = assertThrows(Refusal.class, () -> new Gate(() -> false).call(() -> {
            throw new CloudException(CloudException.Kind.THROTTLED, "too many requests");
        }));
        assertEquals("RATE_LIMITED", Reasons.of(refusal));
    }
}
