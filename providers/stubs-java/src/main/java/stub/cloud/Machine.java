package stub.cloud;

/** A machine, as the cloud's API returns it. Its ID begins with its zone, so that the ID alone says where to look. */
public record Machine(String id, String zone, String name, String cluster, String address, String uuid, boolean running) {
    Machine withRunning(boolean now) {
        return new Machine(id, zone, name, cluster, address, uuid, now);
    }
}
