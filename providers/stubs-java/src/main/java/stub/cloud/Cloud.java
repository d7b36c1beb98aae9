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
 * A small cloud that stands where a vendor has an HTTP API: in memory, and in a file, so that it outlives the provider. Each public
 * method is one call of that API: it takes its time, may be interrupted, and fails as {@link Conditions} say.
 */
public final class Cloud {
    /** All that it holds, by id. */
    private record Held(TreeMap<String, Machine> machines, TreeMap<String, Balancer> balancers) {}

    /** What was found, and which zones could not be queried. */
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

    /** The status page: whether the API answers, and takes the token. */
    public void ping() throws InterruptedException {
        Thread.sleep(conditions.latencyMillis);
        conditions.check("ping");
    }

    /** The machines with one of these ids, or one of these names, or one of these firmware uuids. */
    public Found machines(Collection<String> ids, Collection<String> names, Collection<String> uuids) throws InterruptedException {
        return read("machines.read", () -> found(one -> ids.contains(one.id()) || names.contains(one.name()) || uuids.contains(one.uuid())));
    }

    /** The machines of a cluster. */
    public Found machinesOf(String cluster) throws InterruptedException {
        return read("machines.list", () -> found(one -> one.cluster().equals(cluster)));
    }

    /** The balancers that are tagged with one of these Services, or have one of these names. */
    public List<Balancer> balancers(Collection<String> services, Collection<String> names) throws InterruptedException {
        return read("balancers.read", () -> balancers(one -> services.contains(one.tags().service()) || names.contains(one.name())));
    }

    /** The balancers that are tagged with a cluster's uid, or with its name and no uid. */
    public List<Balancer> balancersOf(String cluster, String clusterName) throws InterruptedException {
        return read("balancers.list", () -> balancers(one -> one.tags().cluster().equals(cluster)
                || one.tags().cluster().isEmpty() && one.tags().clusterName().equals(clusterName)));
    }

    /** Makes a balancer. Names are unique. */
    public Balancer create(String name, Tags tags, Config config, List<String> targets) throws InterruptedException {
        return change("balancers.create", () -> {
            if (held.balancers.values().stream().anyMatch(one -> one.name().equals(name))) {
                throw new CloudException(CloudException.Kind.NAME_TAKEN, "a load balancer " + name + " exists");
            }
            long ready = System.currentTimeMillis() + conditions.buildMillis;
            return put(new Balancer(nextId("lb"), name, tags, config, targets, Addresses.fit(config, List.of(), taken()), ready));
        });
    }

    /** Replaces all of a balancer but its name. Addresses stay where they fit. */
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

    /** Removes a balancer; one that is gone is no error. */
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

    /** Without the API: what happens in the cloud by itself, or by its operator's hand. */
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
