package stub.cloud;

import com.google.gson.Gson;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Predicate;
import java.util.function.Supplier;
import java.util.stream.Stream;
import stub.cloud.Balancer.Config;
import stub.cloud.Balancer.Retarget;
import stub.cloud.Balancer.Tags;

/**
 * A small fake cloud in place of a vendor's HTTP API: in memory, and saved to a file, so that it outlives the provider. Each public
 * method is one API call, which takes time, can be interrupted, and fails as {@link Conditions} demand.
 */
public final class Cloud {
    /** The cloud's objects, by ID. */
    private record Held(TreeMap<String, Machine> machines, TreeMap<String, Balancer> balancers) {}

    /** The machines found, and the zones that could not be queried. */
    public record Found(List<Machine> machines, Set<String> lostZones) {}

    private static final Gson JSON = new Gson();

    private final Path file;
    private final Held held;
    final Conditions conditions = new Conditions();
    final AtomicLong calls = new AtomicLong();
    final AtomicLong changes = new AtomicLong();
    private long lastId;

    public Cloud(Path file) throws IOException {
        this.file = file;
        held = Files.exists(file) ? JSON.fromJson(Files.readString(file), Held.class) : new Held(new TreeMap<>(), new TreeMap<>());
        lastId = System.currentTimeMillis();
    }

    /** Checks that the API answers and accepts the token. */
    public void ping() throws InterruptedException {
        Thread.sleep(conditions.latencyMillis);
        conditions.check("ping");
    }

    /** The machines with one of these IDs, names or firmware UUIDs. */
    public Found machines(Collection<String> ids, Collection<String> names, Collection<String> uuids) throws InterruptedException {
        return read("machines.read", () -> found(one -> ids.contains(one.id()) || names.contains(one.name()) || uuids.contains(one.uuid())));
    }

    public Found machinesOf(String cluster) throws InterruptedException {
        return read("machines.list", () -> found(one -> one.cluster().equals(cluster)));
    }

    /** The balancers tagged with one of these Services, or with one of these names. */
    public List<Balancer> balancers(Collection<String> services, Collection<String> names) throws InterruptedException {
        return read("balancers.read", () -> balancers(one -> services.contains(one.tags().service()) || names.contains(one.name())));
    }

    /** The balancers tagged with the cluster's UID, or with its name and no UID. */
    public List<Balancer> balancersOf(String cluster, String clusterName) throws InterruptedException {
        return read("balancers.list", () -> balancers(one -> one.tags().cluster().equals(cluster)
                || one.tags().cluster().isEmpty() && one.tags().clusterName().equals(clusterName)));
    }

    /** Creates a balancer. Names are unique. */
    public Balancer create(String name, Tags tags, Config config, List<String> targets) throws InterruptedException {
        return change("balancers.create", () -> {
            if (held.balancers.values().stream().anyMatch(one -> one.name().equals(name))) {
                throw new CloudException(CloudException.Kind.NAME_TAKEN, "a load balancer " + name + " exists");
            }
            long ready = System.currentTimeMillis() + conditions.buildMillis;
            return put(new Balancer(nextId("lb"), name, tags, config, targets, Addresses.fit(config, List.of(), taken()), ready));
        });
    }

    /** Replaces a balancer's tags, configuration and targets. It keeps the addresses whose family is still wanted. */
    public Balancer configure(String id, Tags tags, Config config, List<String> targets) throws InterruptedException {
        return change("balancers.configure", () -> {
            Balancer old = balancer(id);
            return put(old.with(tags, config, targets, Addresses.fit(config, old.addresses(), taken())));
        });
    }

    /** Replaces the targets and tags of many balancers. */
    public void retarget(List<Retarget> all) throws InterruptedException {
        change("balancers.retarget", () -> {
            for (Retarget one : all) {
                Balancer old = balancer(one.id());
                put(old.with(one.tags(), old.config(), one.targets(), old.addresses()));
            }
            return null;
        });
    }

    /** Deletes a balancer. Succeeds if it does not exist. */
    public void delete(String id) throws InterruptedException {
        change("balancers.delete", () -> held.balancers.remove(id));
    }

    private Found found(Predicate<Machine> wanted) {
        Stream<Machine> there = held.machines.values().stream().filter(one -> !conditions.lostZones.contains(one.zone()));
        return new Found(there.filter(wanted).toList(), Set.copyOf(conditions.lostZones));
    }

    private List<Balancer> balancers(Predicate<Balancer> wanted) {
        return held.balancers.values().stream().filter(wanted).toList();
    }

    Balancer balancer(String id) {
        Balancer found = held.balancers.get(id);
        if (found == null) throw new CloudException(CloudException.Kind.NOT_FOUND, "no load balancer " + id);
        return found;
    }

    Map<String, Machine> held() {
        return held.machines;
    }

    Balancer put(Balancer balancer) {
        held.balancers.put(balancer.id(), balancer);
        return balancer;
    }

    Stream<Balancer> standing(String cluster) {
        return held.balancers.values().stream().filter(one -> one.tags().cluster().equals(cluster));
    }

    boolean removeIf(Predicate<Balancer> unwanted) {
        return held.balancers.values().removeIf(unwanted);
    }

    String nextId(String kind) {
        lastId++;
        return kind + "-" + Long.toString(lastId, 36);
    }

    List<String> taken() {
        List<String> all = new ArrayList<>();
        held.balancers.values().forEach(one -> all.addAll(one.addresses()));
        return all;
    }

    private <T> T read(String operation, Supplier<T> work) throws InterruptedException {
        calls.incrementAndGet();
        Thread.sleep(conditions.latencyMillis);
        conditions.check(operation);
        synchronized (this) {
            return work.get();
        }
    }

    private <T> T change(String operation, Supplier<T> work) throws InterruptedException {
        calls.incrementAndGet();
        changes.incrementAndGet();
        Thread.sleep(conditions.latencyMillis);
        conditions.check(operation);
        return changing(work);
    }

    /** Changes the cloud without an API call: as its operator, or by itself. */
    synchronized <T> T changing(Supplier<T> work) {
        T answer = work.get();
        try {
            Path beside = file.resolveSibling(file.getFileName() + ".new");
            Files.writeString(beside, JSON.toJson(held));
            Files.move(beside, file, StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return answer;
    }
}
