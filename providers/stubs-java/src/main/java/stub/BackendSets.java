package stub;

import ccm.cloudprovider.v1alpha1.BackendSet;
import ccm.cloudprovider.v1alpha1.ErrorReason;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The sets of backends that came with their nodes, by cluster and digest: later requests name them by the digest alone. */
final class BackendSets {
    private record Key(String cluster, String digest) {}

    /** The contract wants the last four; each may hold thousands of nodes. */
    private static final int KEPT = 32;
    private static final int TOLD_BYTES = 256;

    private final Map<Key, BackendSet> kept = new LinkedHashMap<>(16, 0.75f, true) {
        @Override
        protected boolean removeEldestEntry(Map.Entry<Key, BackendSet> eldest) {
            return size() > KEPT;
        }
    };

    /** The same sets with their nodes. All that are not known here are told at once. */
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
        throw Refusal.of(ErrorReason.ERROR_REASON_UNKNOWN_BACKEND_SET, "a set of backends is not known here", Map.of("digests", told.toString()));
    }
}
