package stub.cloud;

import com.google.gson.Gson;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.IntStream;
import stub.cloud.CloudException.Kind;

/**
 * The operator's door into the cloud, in place of a vendor's console: HTTP on loopback, at a port that it writes to a file. The hooks
 * of the conformance suite use it.
 */
public final class Door {
    private static final Gson JSON = new Gson();
    private static final String PREFIX = "stub-java://";
    private static final String[] ZONES = {"eu-1a", "eu-1b"};
    /** The cloud operation whose failure makes each RPC fail. */
    private static final Map<String, String> OPERATIONS = Map.of(
            "BatchGetInstances", "machines.read", "ListInstances", "machines.list", "GetLoadBalancer", "balancers.read",
            "EnsureLoadBalancer", "balancers.create", "DeleteLoadBalancer", "balancers.delete", "ListLoadBalancers", "balancers.list",
            "BatchUpdateLoadBalancers", "balancers.retarget");
    private static final Map<String, Kind> PROVOKED = Map.of(
            "CLOUD_API_UNAVAILABLE", Kind.UNREACHABLE, "CLOUD_CREDENTIALS_INVALID", Kind.BAD_CREDENTIALS,
            "CLOUD_CREDENTIALS_EXPIRED", Kind.EXPIRED_CREDENTIALS, "CLOUD_PERMISSION_DENIED", Kind.FORBIDDEN,
            "RATE_LIMITED", Kind.THROTTLED, "QUOTA_EXCEEDED", Kind.QUOTA, "CAPACITY_UNAVAILABLE", Kind.NO_CAPACITY);

    private final Cloud cloud;

    private Door(Cloud cloud) {
        this.cloud = cloud;
    }

    /** Opens the door, and writes its port to a file. */
    public static void open(Cloud cloud, Path portFile) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/", new Door(cloud)::handle);
        server.start();
        Files.writeString(portFile, Integer.toString(server.getAddress().getPort()));
    }

    private void handle(HttpExchange exchange) throws IOException {
        Map<String, String> told = new HashMap<>();
        String query = exchange.getRequestURI().getRawQuery();
        for (String pair : query == null ? new String[0] : query.split("&")) {
            String[] parts = pair.split("=", 2);
            told.put(parts[0], URLDecoder.decode(parts[1], StandardCharsets.UTF_8));
        }
        int code = 200;
        String answer;
        try {
            answer = JSON.toJson(answer(exchange.getRequestURI().getPath().substring(1), told));
        } catch (UnsupportedOperationException none) {
            code = 501;
            answer = none.getMessage();
        } catch (RuntimeException error) {
            code = 500;
            answer = error.toString();
        }
        byte[] bytes = answer.getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(code, bytes.length);
        exchange.getResponseBody().write(bytes);
        exchange.close();
    }

    private Object answer(String what, Map<String, String> told) {
        Conditions now = cloud.conditions;
        switch (what) {
            case "create" -> {
                return cloud.changing(() -> create(told.get("name"), told.get("cluster")));
            }
            case "start", "stop" -> cloud.changing(() -> cloud.held().computeIfPresent(told.get("id"), (id, one) -> one.withRunning(what.equals("start"))));
            case "terminate" -> cloud.changing(() -> cloud.held().remove(told.get("id")));
            case "fail" -> now.everywhere = Kind.valueOf(told.get("kind"));
            case "mend" -> now.everywhere = null;
            case "lose" -> now.lostZones.add(told.get("id").split("/")[0]);
            case "regain" -> now.lostZones.clear();
            case "provoke" -> now.provoked.put(known(OPERATIONS, told.get("method")), known(PROVOKED, told.get("reason")));
            case "calm" -> now.provoked.clear();
            case "slow" -> now.buildMillis = Long.parseLong(told.get("millis"));
            case "delay" -> now.latencyMillis = Long.parseLong(told.get("millis"));
            case "crowd" -> {
                IntStream all = IntStream.range(0, Integer.parseInt(told.get("count")));
                return cloud.changing(() -> all.mapToObj(at -> create(told.get("name") + "-" + at, told.get("cluster"))).toList());
            }
            case "scatter" -> cloud.changing(() -> cloud.held().values().removeIf(one -> one.name().startsWith(told.get("name") + "-")));
            case "count" -> {
                return Map.of("calls", cloud.calls, "changes", cloud.changes);
            }
            case "objects" -> {
                return cloud.changing(() -> cloud.standing(told.get("cluster")).map(one -> Map.of("kind", "balancer", "id", one.id())).toList());
            }
            case "inspect" -> {
                return cloud.changing(() -> inspect(told.get("service"), told.get("cluster")));
            }
            case "drift" -> cloud.changing(() -> drift(told.get("id")));
            case "legacy" -> cloud.changing(() -> legacy(told));
            case "remove" -> cloud.changing(() -> removeNamed(told.get("name")));
            default -> throw new UnsupportedOperationException(what);
        }
        return Map.of();
    }

    private static <T> T known(Map<String, T> all, String one) {
        T found = all.get(one);
        if (found == null) throw new UnsupportedOperationException("this cloud cannot provoke " + one);
        return found;
    }

    private Map<String, Object> create(String name, String cluster) {
        int at = cloud.held().size();
        String zone = ZONES[at % ZONES.length];
        String address = "10.1." + at / 250 % 250 + "." + (at % 250 + 1);
        Machine made = new Machine(zone + "/" + cloud.nextId("m"), zone, name, cluster, address, UUID.randomUUID().toString(), true);
        cloud.held().put(made.id(), made);
        return Map.of("name", name, "provider_id", PREFIX + made.id(), "system_uuid", made.uuid(), "addresses", List.of(address));
    }

    /** A Service's balancers, in the conformance suite's format. */
    private List<Map<String, Object>> inspect(String service, String cluster) {
        return cloud.standing(cluster).filter(one -> one.tags().service().equals(service)).map(one -> {
            Map<String, Object> told = new HashMap<>();
            told.put("ports", one.config().listeners().stream()
                    .map(port -> Map.of("protocol", port.protocol(), "port", port.port(), "node_port", port.nodePort()))
                    .toList());
            told.put("targets", one.targets().stream().map(id -> PREFIX + id).toList());
            told.put("source_ranges", one.config().sourceRanges());
            told.put("families", one.addresses().stream().map(address -> address.contains(":") ? "IPv6" : "IPv4").toList());
            told.put("client_ip_affinity", one.config().affinitySeconds() != 0);
            if (one.config().healthPort() != 0) told.put("health_check", Map.of("port", one.config().healthPort()));
            return told;
        }).toList();
    }

    private Balancer drift(String id) {
        Balancer old = cloud.balancer(id);
        var config = new Balancer.Config(old.config().listeners(), List.of("203.0.113.0/24"), old.config().families(), 0, 0);
        return cloud.put(old.with(old.tags(), config, old.targets(), old.addresses()));
    }

    private Balancer legacy(Map<String, String> told) {
        var tags = new Balancer.Tags("", told.get("cluster"), "", told.get("namespace"), told.get("service"), "", "");
        var config = new Balancer.Config(List.of(), List.of(), List.of("IPv4"), 0, 0);
        List<String> addresses = Addresses.fit(config, List.of(), cloud.taken());
        return cloud.put(new Balancer(cloud.nextId("lb"), told.get("name"), tags, config, List.of(), addresses, 0));
    }

    private Object removeNamed(String name) {
        return cloud.removeIf(one -> one.name().equals(name));
    }
}
