package stub;

import ccm.cloudprovider.v1alpha1.ConditionStatus;
import ccm.cloudprovider.v1alpha1.ConditionType;
import ccm.cloudprovider.v1alpha1.GetStatusResponse;
import ccm.cloudprovider.v1alpha1.ProviderCondition;
import com.google.protobuf.util.Timestamps;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import stub.cloud.Cloud;
import stub.cloud.CloudException;

/** Checks the cloud's health in the background, since `GetStatus` answers from memory. */
final class Pulse {
    private static final long PERIOD_MILLIS = 500;

    private final Cloud cloud;
    private volatile GetStatusResponse status = GetStatusResponse.getDefaultInstance();

    Pulse(Cloud cloud) {
        this.cloud = cloud;
    }

    /** Checks once, then regularly in the background. */
    void start(ScheduledExecutorService timers) {
        look();
        timers.scheduleWithFixedDelay(this::look, PERIOD_MILLIS, PERIOD_MILLIS, TimeUnit.MILLISECONDS);
    }

    GetStatusResponse status() {
        return status;
    }

    private void look() {
        CloudException.Kind wrong = null;
        try {
            cloud.ping();
        } catch (CloudException error) {
            wrong = error.kind();
        } catch (InterruptedException stopping) {
            Thread.currentThread().interrupt();
            return;
        }
        boolean reachable = wrong != CloudException.Kind.UNREACHABLE;
        boolean refused = wrong == CloudException.Kind.BAD_CREDENTIALS || wrong == CloudException.Kind.EXPIRED_CREDENTIALS;
        GetStatusResponse.Builder now = GetStatusResponse.newBuilder();
        now.addConditions(condition(ConditionType.CONDITION_TYPE_CLOUD_REACHABLE, reachable, "CloudSilent"));
        // An unreachable cloud says nothing about the credentials.
        if (reachable) now.addConditions(condition(ConditionType.CONDITION_TYPE_CREDENTIALS_VALID, !refused, "CredentialsRefused"));
        status = now.build();
    }

    private ProviderCondition condition(ConditionType type, boolean good, String reason) {
        ConditionStatus now = good ? ConditionStatus.CONDITION_STATUS_TRUE : ConditionStatus.CONDITION_STATUS_FALSE;
        ProviderCondition.Builder answer = ProviderCondition.newBuilder().setType(type).setStatus(now).setReason(good ? "Ok" : reason);
        answer.setSince(status.getConditionsList().stream()
                .filter(old -> old.getType() == type && old.getStatus() == now)
                .findFirst()
                .map(ProviderCondition::getSince)
                .orElseGet(Timestamps::now));
        return answer.build();
    }
}
