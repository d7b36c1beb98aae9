package stub.cloud;

/** The cloud refused a call, or did not answer it. */
public final class CloudException extends RuntimeException {
    /** The documented errors of the cloud's API. */
    public enum Kind { UNREACHABLE, BAD_CREDENTIALS, EXPIRED_CREDENTIALS, FORBIDDEN, THROTTLED, QUOTA, NO_CAPACITY, NAME_TAKEN, NOT_FOUND }

    private final transient Kind kind;

    public CloudException(Kind kind, String message) {
        super(message);
        this.kind = kind;
    }

    public Kind kind() {
        return kind;
    }
}
