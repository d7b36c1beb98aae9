package stub;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import io.grpc.protobuf.StatusProto;

/** Reads the reasons of errors, as a host does. */
final class Reasons {
    private Reasons() {}

    static String of(Refusal refusal) {
        return of((Throwable) refusal.toStatus());
    }

    static String of(Throwable error) {
        for (Any detail : StatusProto.fromThrowable(error).getDetailsList()) {
            try {
                if (detail.is(ErrorInfo.class)) return detail.unpack(ErrorInfo.class).getReason();
            } catch (InvalidProtocolBufferException broken) {
                throw new AssertionError(broken);
            }
        }
        throw new AssertionError("no ErrorInfo", error);
    }
}
