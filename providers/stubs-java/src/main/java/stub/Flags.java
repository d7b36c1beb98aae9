package stub;

import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;

/**
 * The command line.
 *
 * @param socket null if the provider listens on an address
 * @param door the file for the port of the operator's door; null if the door stays shut
 */
record Flags(Path socket, InetSocketAddress address, Path tls, Path cloud, Path door) {
    static final String USAGE = """
            usage: stubs-java --endpoint unix:///path/of/the/socket | tcp://address:port --tls-dir DIRECTORY
                   --cloud FILE [--door FILE]""";

    static Flags parse(String... arguments) {
        Map<String, String> told = new HashMap<>();
        for (int at = 0; at < arguments.length; at++) {
            String[] parts = arguments[at].split("=", 2);
            if (parts.length == 1 && at + 1 == arguments.length) throw new IllegalArgumentException(parts[0] + " needs a value");
            told.put(parts[0], parts.length == 2 ? parts[1] : arguments[++at]);
        }
        URI endpoint = URI.create(needed(told, "--endpoint"));
        boolean unix = "unix".equals(endpoint.getScheme());
        if (!unix && !("tcp".equals(endpoint.getScheme()) && told.containsKey("--tls-dir"))) {
            throw new IllegalArgumentException("--endpoint " + endpoint + " is neither unix:///path nor tcp://address:port with --tls-dir");
        }
        Flags flags = new Flags(
                unix ? Path.of(endpoint.getPath()) : null,
                unix ? null : new InetSocketAddress(endpoint.getHost(), endpoint.getPort()),
                path(told.remove("--tls-dir")),
                path(needed(told, "--cloud")),
                path(told.remove("--door")));
        told.keySet().removeAll(Set.of("--endpoint", "--cloud"));
        if (!told.isEmpty()) throw new IllegalArgumentException("unknown flags " + told.keySet());
        return flags;
    }

    private static String needed(Map<String, String> told, String flag) {
        String value = told.get(flag);
        if (value == null) throw new IllegalArgumentException(flag + " is missing");
        return value;
    }

    private static Path path(String value) {
        return value == null ? null : Path.of(value);
    }
}
