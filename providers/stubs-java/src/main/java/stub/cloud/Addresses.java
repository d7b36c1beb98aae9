package stub.cloud;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.stream.IntStream;

/** Allocates the addresses of balancers: for each family, the lowest free one. */
final class Addresses {
    private static final int POOL = 60_000;

    private Addresses() {}

    /** Keeps the balancer's address of each requested family, or allocates one. */
    static List<String> fit(Balancer.Config config, List<String> has, Collection<String> taken) {
        List<String> fit = new ArrayList<>();
        for (String family : config.families()) {
            boolean six = family.equals("IPv6");
            fit.add(has.stream().filter(one -> one.contains(":") == six).findFirst().orElseGet(() -> free(six, taken)));
        }
        return fit;
    }

    private static String free(boolean six, Collection<String> taken) {
        return IntStream.range(1, POOL)
                .mapToObj(at -> six ? "2001:db8::" + Integer.toHexString(at) : "198.18." + at / 250 + "." + (at % 250 + 1))
                .filter(one -> !taken.contains(one))
                .findFirst()
                .orElseThrow(() -> new CloudException(CloudException.Kind.NO_CAPACITY, "no address is left"));
    }
}
