package stub;

import ccm.cloudprovider.v1alpha1.ErrorReason;
import ccm.cloudprovider.v1alpha1.ItemError;
import ccm.cloudprovider.v1alpha1.Options;
import com.google.protobuf.Any;
import com.google.protobuf.Duration;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import com.google.rpc.Status;
import io.grpc.Status.Code;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.util.Map;
import stub.cloud.CloudException;

/** An error of the contract: a reason, a message that does not vary from call to call, and metadata for what does. */
public final class Refusal extends RuntimeException {
    private static final String DOMAIN = "cloudprovider.ccm";
    private static final String PREFIX = "ERROR_REASON_";

    private final transient ErrorReason reason;
    private final transient Map<String, String> metadata;
    private final transient Duration retryAfter;

    private Refusal(ErrorReason reason, String message, Map<String, String> metadata, Duration retryAfter) {
        super(message);
        this.reason = reason;
        this.metadata = metadata;
        this.retryAfter = retryAfter;
    }

    public static Refusal of(ErrorReason reason, String message) {
        return new Refusal(reason, message, Map.of(), null);
    }

    public static Refusal of(ErrorReason reason, String message, Map<String, String> metadata) {
        return new Refusal(reason, message, metadata, null);
    }

    public static Refusal outOfShape(String field, String why) {
        return of(ErrorReason.ERROR_REASON_INVALID_ARGUMENT_SHAPE, field + " " + why);
    }

    /** Translates an error of the cloud into one of the contract. */
    public static Refusal of(CloudException error) {
        ErrorReason reason = switch (error.kind()) {
            case UNREACHABLE -> ErrorReason.ERROR_REASON_CLOUD_API_UNAVAILABLE;
            case BAD_CREDENTIALS -> ErrorReason.ERROR_REASON_CLOUD_CREDENTIALS_INVALID;
            case EXPIRED_CREDENTIALS -> ErrorReason.ERROR_REASON_CLOUD_CREDENTIALS_EXPIRED;
            case FORBIDDEN -> ErrorReason.ERROR_REASON_CLOUD_PERMISSION_DENIED;
            case THROTTLED -> ErrorReason.ERROR_REASON_RATE_LIMITED;
            case QUOTA -> ErrorReason.ERROR_REASON_QUOTA_EXCEEDED;
            case NO_CAPACITY -> ErrorReason.ERROR_REASON_CAPACITY_UNAVAILABLE;
            case NAME_TAKEN -> ErrorReason.ERROR_REASON_OWNED_BY_OTHER_CLUSTER;
            // Somebody deleted it between two of our calls.
            case NOT_FOUND -> ErrorReason.ERROR_REASON_CONCURRENT_OPERATION;
        };
        return switch (reason) {
            case ERROR_REASON_CLOUD_PERMISSION_DENIED -> of(reason, "a permission is missing", Map.of("action", error.getMessage()));
            case ERROR_REASON_RATE_LIMITED -> new Refusal(reason, error.getMessage(), Map.of(), Duration.newBuilder().setSeconds(1).build());
            default -> of(reason, error.getMessage());
        };
    }

    /** The error of one item of a batch. */
    public ItemError toItem() {
        ItemError.Builder error = ItemError.newBuilder().setReason(reason).setMessage(getMessage());
        if (retryAfter != null) error.setRetryAfter(retryAfter);
        return error.build();
    }

    /** The error of a call, as gRPC carries it: a google.rpc.Status in a trailer. */
    public StatusRuntimeException toStatus() {
        ErrorInfo info = ErrorInfo.newBuilder().setDomain(DOMAIN).setReason(reason.name().substring(PREFIX.length())).putAllMetadata(metadata).build();
        Status.Builder status = Status.newBuilder().setCode(code(reason).value()).setMessage(getMessage()).addDetails(Any.pack(info));
        if (retryAfter != null) status.addDetails(Any.pack(RetryInfo.newBuilder().setRetryDelay(retryAfter).build()));
        return StatusProto.toStatusRuntimeException(status.build());
    }

    /** The code that the contract gives each reason, in an option of the enum value. */
    private static Code code(ErrorReason reason) {
        return Code.valueOf(reason.getValueDescriptor().getOptions().getExtension(Options.reason).getCodes(0));
    }
}
