package stub;

import java.util.concurrent.Callable;
import java.util.function.BooleanSupplier;
import stub.cloud.CloudException;

/**
 * Every call to the cloud passes a gate. Shutting it prevents further calls and interrupts a call in flight. The gate of a read shuts
 * when its caller disconnects or its deadline passes, the gate of a mutation when its term ends.
 */
final class Gate {
    /** Says nothing about the object; whoever shut the gate knows why. */
    static final class ShutException extends RuntimeException {}

    private final BooleanSupplier over;
    private Thread inside;
    private boolean shut;

    /** Each call also checks `over`, since the timer that shuts the gate may fire late. */
    Gate(BooleanSupplier over) {
        this.over = over;
    }

    /** Makes one call to the cloud. */
    <T> T call(Callable<T> cloudCall) {
        if (over.getAsBoolean()) throw new ShutException();
        synchronized (this) {
            if (shut) throw new ShutException();
            inside = Thread.currentThread();
        }
        try {
            return cloudCall.call();
        } catch (InterruptedException woken) {
            throw new ShutException();
        } catch (CloudException error) {
            throw Refusal.of(error);
        } catch (RuntimeException error) {
            throw error;
        } catch (Exception error) {
            throw new IllegalStateException(error);
        } finally {
            synchronized (this) {
                inside = null;
                // A shut that came too late to interrupt the call must not interrupt this thread's next work.
                Thread.interrupted();
            }
        }
    }

    synchronized void shut() {
        shut = true;
        if (inside != null) inside.interrupt();
    }
}
