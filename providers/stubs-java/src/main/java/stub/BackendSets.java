package stub;

import ccm.cloudprovider.v1alpha1.BackendSet;
import ccm.cloudprovider.v1alpha1.ErrorReason;
import java.util.LinkedHashMap;
import java.util.Map;

/** Remembers the backend sets that hosts sent with their nodes, by cluster and digest: later requests name a set by its digest alone. */
final class BackendSets {
    private record Key(String cluster, String digest) {}

    /** The contract asks for at least the last four. Bounded, since each may hold thousands of nodes. */
    private static final int KEPT = 32;

    private final Map<Key, BackendSet> kept = new LinkedHashMap<>(16, 0.75f, true) {
        @Override
        protected boolean removeEldestEntry(Map.Entry<Key, BackendSet> eldest) {
            return size() > KEPT;
        }
    };

    /** Returns the set with its nodes, or throws if its digest is unknown. */
    synchronized BackendSet whole(String cluster, BackendSet set) {
        Key key = new Key(cluster, set.getDigest());
        if (set.getNodesOmitted()) {
            BackendSet known = kept.get(key);
            if (known != null) return known;
            throw Refusal.of(ErrorReason.ERROR_REASON_UNKNOWN_BACKEND_SET, "the backend set is unknown: send it with its nodes", Map.of("digest", set.getDigest()));
        }
        if (!set.getDigest().isEmpty()) kept.put(key, set);
        return set;
    }
}
