package stub;

import ccm.cloudprovider.v1alpha1.BackendSet;
import ccm.cloudprovider.v1alpha1.ErrorReason;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Remembers the backend sets that hosts sent with their nodes, by cluster and digest: later requests name a set by its digest alone. */
final class BackendSets {
    private record Key(String cluster, String digest) {}

    /** The contract asks for at least the last four. Bounded, since each may hold thousands of nodes. */
    private static final int KEPT = 32;
    private static final int TOLD_BYTES = 256;

    private final Map<Key, BackendSet> kept = new LinkedHashMap<>(16, 0.75f, true) {
        @Override
        protected boolean removeEldestEntry(Map.Entry<Key, BackendSet> eldest) {
            return size() > KEPT;
        }
    };

    /** Returns the sets with their nodes, or throws one error that names every unknown digest. */
    synchronized List<BackendSet> whole(String cluster, List<BackendSet> sets) {
        List<BackendSet> whole = new ArrayList<>();
        List<String> unknown = new ArrayList<>();
        for (BackendSet set : sets) {
            Key key = new Key(cluster, set.getDigest());
            if (!set.getNodesOmitted()) {
                if (!set.getDigest().isEmpty()) kept.put(key, set);
                whole.add(set);
            } else if (kept.containsKey(key)) {
                whole.add(kept.get(key));
            } else {
                unknown.add(set.getDigest());
            }
        }
        if (unknown.isEmpty()) return whole;
        StringBuilder told = new StringBuilder();
        for (String digest : unknown) {
            if (told.length() + digest.length() >= TOLD_BYTES) break;
            told.append(told.isEmpty() ? "" : ",").append(digest);
        }
        throw Refusal.of(ErrorReason.ERROR_REASON_UNKNOWN_BACKEND_SET, "a backend set is unknown: send it with its nodes", Map.of("digests", told.toString()));
    }
}
