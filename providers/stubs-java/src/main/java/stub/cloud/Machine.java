package stub.cloud;

/** A machine, as the cloud's API tells it. The id begins with the zone: where to ask for it can be told from it alone. */
public record Machine(String id, String zone, String name, String cluster, String address, String uuid, boolean running) {
    Machine withRunning(boolean now) {
        return new Machine(id, zone, name, cluster, address, uuid, now);
    }
}
