package stub;

import static org.junit.jupiter.api.Assertions.assertEquals;

import ccm.cloudprovider.v1alpha1.ErrorReason;
import java.util.Arrays;
import org.junit.jupiter.api.Test;

class RefusalTest {
    @Test
    void everyReasonHasACodeAndArrives() {
        Arrays.stream(ErrorReason.values()).filter(one -> one != ErrorReason.UNRECOGNIZED).forEach(one -> {
            Refusal refusal = Refusal.of(one, "why");
            assertEquals("ERROR_REASON_" + Reasons.of(refusal), one.name());
        });
        assertEquals("ABORTED", Refusal.of(ErrorReason.ERROR_REASON_STALE_REVISION, "why").toStatus().getStatus().getCode().name());
    }
}
