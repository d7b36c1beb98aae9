package stub.cloud;

/** The cloud refuses a call, or does not answer it. */
public final class CloudException extends RuntimeException {
    /** How it fails, as its API documents it. */
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
