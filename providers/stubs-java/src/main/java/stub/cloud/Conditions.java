package stub.cloud;

import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** What is wrong with the cloud at the moment. In memory only: a cloud that is started again is well. */
final class Conditions {
    volatile CloudException.Kind everywhere;
    final Set<String> lostZones = ConcurrentHashMap.newKeySet();
    /** By operation of the API. */
    final Map<String, CloudException.Kind> provoked = new ConcurrentHashMap<>();
    volatile long latencyMillis;
    volatile long buildMillis;

    void check(String operation) {
        CloudException.Kind kind = everywhere != null ? everywhere : provoked.get(operation);
        if (kind == null) return;
        throw new CloudException(kind, switch (kind) {
            case UNREACHABLE -> "the cloud does not answer";
            case BAD_CREDENTIALS -> "the token is not known";
            case EXPIRED_CREDENTIALS -> "the token ran out";
            case FORBIDDEN -> operation;
            case THROTTLED -> "too many requests";
            case QUOTA -> "the quota of load balancers is used up";
            case NO_CAPACITY -> "no load balancer is left";
            case NAME_TAKEN, NOT_FOUND -> throw new IllegalStateException("no condition of the whole cloud: " + kind);
        });
    }
}
