package stub;

import ccm.cloudprovider.v1alpha1.ErrorReason;
import ccm.cloudprovider.v1alpha1.NodeRef;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.stream.Collectors;
import stub.cloud.Cloud;
import stub.cloud.Machine;

/** The instances that the cloud found for a set of nodes. */
final class Looked {
    static final String PREFIX = "stub-java://";

    private final Map<String, List<Machine>> byId;
    private final Map<String, List<Machine>> byName;
    private final Map<String, List<Machine>> byUuid;
    private final Set<String> lostZones;

    private Looked(Cloud.Found found) {
        byId = by(found, Machine::id);
        byName = by(found, Machine::name);
        byUuid = by(found, Machine::uuid);
        lostZones = found.lostZones();
    }

    /** Looks all of them up in one call to the cloud. */
    static Looked up(Cloud cloud, List<NodeRef> nodes) throws InterruptedException {
        return new Looked(cloud.machines(
                nodes.stream().map(NodeRef::getProviderId).filter(id -> id.startsWith(PREFIX)).map(Looked::idOf).collect(Collectors.toSet()),
                nodes.stream().filter(node -> node.getProviderId().isEmpty()).map(NodeRef::getName).collect(Collectors.toSet()),
                nodes.stream().map(NodeRef::getSystemUuid).filter(uuid -> !uuid.isEmpty()).collect(Collectors.toSet())));
    }

    /** The instances of one node: by provider ID if it has one, which outranks everything else; else by name, else by firmware UUID. */
    List<Machine> of(NodeRef node) {
        String given = node.getProviderId();
        if (!given.isEmpty()) return given.startsWith(PREFIX) ? byId.getOrDefault(idOf(given), List.of()) : List.of();
        List<Machine> named = byName.getOrDefault(node.getName(), List.of());
        return named.isEmpty() ? byUuid.getOrDefault(node.getSystemUuid(), List.of()) : named;
    }

    /** Why it is not known whether this node, which was not found, has an instance; null if it is known that it has none. */
    Refusal unknown(NodeRef node) {
        String given = node.getProviderId();
        return lostZones.stream().filter(zone -> given.isEmpty() || given.startsWith(PREFIX + zone + "/")).map(Looked::unreachable).findFirst().orElse(null);
    }

    static Refusal unreachable(String zone) {
        return Refusal.of(ErrorReason.ERROR_REASON_LOCATION_UNREACHABLE, "zone " + zone + " does not answer");
    }

    static String idOf(String providerId) {
        return providerId.substring(PREFIX.length());
    }

    private static Map<String, List<Machine>> by(Cloud.Found found, Function<Machine, String> key) {
        return found.machines().stream().collect(Collectors.groupingBy(key, HashMap::new, Collectors.toList()));
    }
}
