package stub;

import java.util.concurrent.Callable;
import java.util.function.BooleanSupplier;
import stub.cloud.CloudException;

/**
 * What work goes through to the cloud. Once it is shut, no further call of the cloud begins, and one that waits is woken: the caller
 * of a read went away or its deadline passed, or who a mutation runs for leads no more.
 */
final class Gate {
    /** Nothing was decided about the object; who shut the gate knows why. */
    static final class ShutException extends RuntimeException {}

    private final BooleanSupplier over;
    private Thread inside;
    private boolean shut;

    /** Is asked before each call, beside being shut: a timer may be late. */
    Gate(BooleanSupplier over) {
        this.over = over;
    }

    /** One call of the cloud. */
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
                // A shut that came too late to wake the call must not wake what this thread does next.
                Thread.interrupted();
            }
        }
    }

    synchronized void shut() {
        shut = true;
        if (inside != null) inside.interrupt();
    }
}
