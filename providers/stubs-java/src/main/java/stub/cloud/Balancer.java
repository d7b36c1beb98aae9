package stub.cloud;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.UUID;

/**
 * A balancer, as the cloud's API returns it.
 *
 * @param targets IDs of machines
 * @param readyAt when it starts to serve, in milliseconds since the epoch
 */
public record Balancer(String id, String name, Tags tags, Config config, List<String> targets, List<String> addresses, long readyAt) {
    /**
     * The tags that the owner of a balancer puts on it.
     *
     * @param applied a fingerprint of what the owner applied last, to detect changes by others; empty until everything has been applied
     * @param digest the host's digest of the same state
     */
    public record Tags(String cluster, String clusterName, String service, String namespace, String name, String applied, String digest) {
        /** The same owner, with this applied. */
        public Tags applied(String what, String digest) {
            return new Tags(cluster, clusterName, service, namespace, name, what, digest);
        }
    }

    /** How it handles traffic. 0 means no affinity, and no health check port. */
    public record Config(List<Listener> listeners, List<String> sourceRanges, List<String> families, long affinitySeconds, int healthPort) {}

    public record Listener(String protocol, int port, int nodePort) {}

    /** New targets of one balancer. */
    public record Retarget(String id, List<String> targets, Tags tags) {}

    public boolean serves() {
        return System.currentTimeMillis() >= readyAt;
    }

    /** A fingerprint of a configuration and its targets. */
    public static String applied(Config config, List<String> targets) {
        return UUID.nameUUIDFromBytes((config.toString() + targets).getBytes(StandardCharsets.UTF_8)).toString();
    }

    public boolean drifted() {
        return !tags.applied.isEmpty() && !tags.applied.equals(applied(config, targets));
    }

    Balancer with(Tags tags, Config config, List<String> targets, List<String> addresses) {
        return new Balancer(id, name, tags, config, targets, addresses, readyAt);
    }
}
