package stub.cloud;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.UUID;

/**
 * A balancer, as the cloud's API tells it.
 *
 * @param tags what its owner noted on it
 * @param targets ids of machines
 * @param readyAt from when on it serves, in milliseconds of the epoch
 */
public record Balancer(String id, String name, Tags tags, Config config, List<String> targets, List<String> addresses, long readyAt) {
    /**
     * What the owner of a balancer notes on it.
     *
     * @param applied what it was given last, to see changes by others; empty when it was never given all
     * @param digest the host's digest of the same
     */
    public record Tags(String cluster, String clusterName, String service, String namespace, String name, String applied, String digest) {
        /** The same owner, who has applied this. */
        public Tags applied(String what, String digest) {
            return new Tags(cluster, clusterName, service, namespace, name, what, digest);
        }
    }

    /** What it does with traffic; an affinity of 0 seconds is none, a health port of 0 likewise. */
    public record Config(List<Listener> listeners, List<String> sourceRanges, List<String> families, long affinitySeconds, int healthPort) {}

    /** One port. */
    public record Listener(String protocol, int port, int nodePort) {}

    /** New targets of one balancer. */
    public record Retarget(String id, List<String> targets, Tags tags) {}

    public boolean serves() {
        return System.currentTimeMillis() >= readyAt;
    }

    /** What it was given, in one text that compares. */
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
