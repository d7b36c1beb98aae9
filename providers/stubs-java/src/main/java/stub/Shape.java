package stub;

import ccm.cloudprovider.v1alpha1.BackendSet;
import ccm.cloudprovider.v1alpha1.ClusterRef;
import ccm.cloudprovider.v1alpha1.ErrorReason;
import ccm.cloudprovider.v1alpha1.NodeRef;
import ccm.cloudprovider.v1alpha1.ServiceRef;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/** Refuses malformed requests before anything else happens. Sizes are in bytes. */
final class Shape {
    static final int MAX_BATCH = 500;
    static final int MAX_PAGE = 500;
    private static final int KEY = 1 << 10;
    private static final int UID = 64;
    private static final int NAME = 253;
    private static final int DIGEST = 128;

    private Shape() {}

    static void cluster(ClusterRef cluster) {
        text("cluster.uid", cluster.getUid(), UID);
        bounded("cluster.name", cluster.getName(), NAME);
    }

    /** For fencing, absent differs from epoch 0: a host without leader election sends epoch 0. */
    static void present(String field, boolean there) {
        if (!there) throw Refusal.outOfShape(field, "is missing");
    }

    static void batch(String field, int size) {
        present(field, size > 0);
        if (size > MAX_BATCH) {
            String most = Integer.toString(MAX_BATCH);
            throw Refusal.of(ErrorReason.ERROR_REASON_BATCH_TOO_LARGE, field + " has more than " + most + " items", Map.of("max", most));
        }
    }

    /** Returns the page size: the requested one, or the maximum if the request names none or more. */
    static int page(ClusterRef cluster, int size, String token) {
        cluster(cluster);
        if (size < 0) throw Refusal.outOfShape("page_size", "is negative");
        bounded("page_token", token, KEY);
        return size == 0 ? MAX_PAGE : Math.min(size, MAX_PAGE);
    }

    static void node(String field, NodeRef node) {
        text(field + ".name", node.getName(), NAME);
        bounded(field + ".provider_id", node.getProviderId(), KEY);
    }

    static void service(String field, ServiceRef service) {
        text(field + ".uid", service.getUid(), UID);
        text(field + ".name", service.getName(), NAME);
        text(field + ".namespace", service.getNamespace(), NAME);
    }

    /** A set that omits its nodes must have a digest, and no nodes. */
    static void backends(String field, BackendSet set) {
        bounded(field + ".digest", set.getDigest(), DIGEST);
        if (!set.getNodesOmitted()) return;
        present(field + ".digest", !set.getDigest().isEmpty());
        if (set.getNodesCount() > 0) throw Refusal.outOfShape(field + ".nodes", "are present although nodes_omitted is set");
    }

    static void digest(String field, String digest) {
        text(field, digest, DIGEST);
    }

    /** The keys of a batch, which must be unique. */
    static final class Keys {
        private final Set<String> seen = new HashSet<>();

        void add(String field, String key) {
            text(field, key, KEY);
            if (!seen.add(key)) throw Refusal.outOfShape(field, "is a duplicate");
        }
    }

    private static void text(String field, String value, int most) {
        present(field, !value.isEmpty());
        bounded(field, value, most);
    }

    private static void bounded(String field, String value, int most) {
        if (value.getBytes(StandardCharsets.UTF_8).length > most) throw Refusal.outOfShape(field, "has more than " + most + " bytes");
    }
}
