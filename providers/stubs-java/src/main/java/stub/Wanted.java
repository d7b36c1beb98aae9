package stub;

import ccm.cloudprovider.v1alpha1.ErrorReason;
import ccm.cloudprovider.v1alpha1.IpFamily;
import ccm.cloudprovider.v1alpha1.Service;
import ccm.cloudprovider.v1alpha1.ServicePort;
import ccm.cloudprovider.v1alpha1.TrafficPolicy;
import java.util.List;
import stub.cloud.Balancer.Config;
import stub.cloud.Balancer.Listener;

/** Translates a Service into the cloud's configuration of a balancer. An unsupported request fails with the name of the Service's field. */
final class Wanted {
    private static final int LAST_PORT = 65_535;

    private Wanted() {}

    static Config config(Service service) {
        if (!service.getLoadBalancerIp().isEmpty()) throw unsupported("spec.loadBalancerIP");
        if (service.hasAllocateNodePorts() && !service.getAllocateNodePorts()) throw unsupported("spec.allocateLoadBalancerNodePorts");
        List<Listener> listeners = service.getPortsList().stream().map(Wanted::listener).toList();
        List<String> families = service.getIpFamiliesList().stream()
                .filter(one -> one == IpFamily.IP_FAMILY_IPV4 || one == IpFamily.IP_FAMILY_IPV6)
                .map(one -> one == IpFamily.IP_FAMILY_IPV6 ? "IPv6" : "IPv4")
                .toList();
        boolean local = service.getExternalTrafficPolicy() == TrafficPolicy.TRAFFIC_POLICY_LOCAL;
        return new Config(
                listeners,
                List.copyOf(service.getSourceRangesList()),
                families.isEmpty() ? List.of("IPv4") : families,
                service.getClientIpAffinity().getSeconds(),
                local ? service.getHealthCheckNodePort() : 0);
    }

    private static Listener listener(ServicePort port) {
        String protocol = switch (port.getProtocol()) {
            case PROTOCOL_TCP -> "TCP";
            case PROTOCOL_UDP -> "UDP";
            // SCTP, and UNRECOGNIZED, which a newer host may send.
            default -> throw unsupported("spec.ports[].protocol");
        };
        if (port.getPort() < 1 || port.getPort() > LAST_PORT) throw Refusal.outOfShape("service.ports.port", "is not between 1 and " + LAST_PORT);
        return new Listener(protocol, port.getPort(), port.getNodePort());
    }

    private static Refusal unsupported(String field) {
        return Refusal.of(ErrorReason.ERROR_REASON_UNSUPPORTED_FEATURE, "this cloud does not support the value of " + field);
    }
}
