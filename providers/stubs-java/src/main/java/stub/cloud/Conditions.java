package stub.cloud;

import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** The failures that the operator has switched on. Kept in memory only, so that a restart clears them. */
final class Conditions {
    volatile CloudException.Kind everywhere;
    final Set<String> lostZones = ConcurrentHashMap.newKeySet();
    /** By API operation. */
    final Map<String, CloudException.Kind> provoked = new ConcurrentHashMap<>();
    volatile long latencyMillis;
    volatile long buildMillis;

    void check(String operation) {
        CloudException.Kind kind = everywhere != null ? everywhere : provoked.get(operation);
        if (kind == null) return;
        throw new CloudException(kind, switch (kind) {
            case UNREACHABLE -> "the cloud does not answer";
            case BAD_CREDENTIALS -> "the token is unknown";
            case EXPIRED_CREDENTIALS -> "the token has expired";
            case FORBIDDEN -> operation;
            case THROTTLED -> "too many requests";
            case QUOTA -> "the quota of load balancers is exhausted";
            case NO_CAPACITY -> "no load balancer is left";
            case NAME_TAKEN, NOT_FOUND -> throw new IllegalStateException(kind + " concerns one object, not the cloud");
        });
    }
}
