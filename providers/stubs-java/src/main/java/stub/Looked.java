package stub;

import ccm.cloudprovider.v1alpha1.NodeRef;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.stream.Collectors;
import stub.cloud.Cloud;
import stub.cloud.Machine;

/** What the cloud knows about some nodes. */
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

    /** Asks the cloud about all of them in one call. */
    static Looked up(Cloud cloud, List<NodeRef> nodes) throws InterruptedException {
        return new Looked(cloud.machines(
                nodes.stream().map(NodeRef::getProviderId).filter(id -> id.startsWith(PREFIX)).map(Looked::idOf).collect(Collectors.toSet()),
                nodes.stream().filter(node -> node.getProviderId().isEmpty()).map(NodeRef::getName).collect(Collectors.toSet()),
                nodes.stream().map(NodeRef::getSystemUuid).filter(uuid -> !uuid.isEmpty()).collect(Collectors.toSet())));
    }

    /** The machines of one node: by its provider ID, which is believed over all else; else by name, else by firmware uuid. */
    List<Machine> of(NodeRef node) {
        String given = node.getProviderId();
        if (!given.isEmpty()) return given.startsWith(PREFIX) ? byId.getOrDefault(idOf(given), List.of()) : List.of();
        List<Machine> named = byName.getOrDefault(node.getName(), List.of());
        return named.isEmpty() ? byUuid.getOrDefault(node.getSystemUuid(), List.of()) : named;
    }

    /** Zones that could not be queried. */
    Set<String> lostZones() {
        return lostZones;
    }

    static String idOf(String providerId) {
        return providerId.substring(PREFIX.length());
    }

    private static Map<String, List<Machine>> by(Cloud.Found found, Function<Machine, String> key) {
        return found.machines().stream().collect(Collectors.groupingBy(key, HashMap::new, Collectors.toList()));
    }
}
