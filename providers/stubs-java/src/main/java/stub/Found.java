package stub;

import ccm.cloudprovider.v1alpha1.ClusterRef;
import ccm.cloudprovider.v1alpha1.IngressIpMode;
import ccm.cloudprovider.v1alpha1.LoadBalancer;
import ccm.cloudprovider.v1alpha1.LoadBalancerIngress;
import ccm.cloudprovider.v1alpha1.LoadBalancerState;
import ccm.cloudprovider.v1alpha1.Ownership;
import ccm.cloudprovider.v1alpha1.ServiceRef;
import ccm.cloudprovider.v1alpha1.SyncState;
import java.util.List;
import stub.cloud.Balancer;

/**
 * The balancer that the cloud has for a Service, and its owner.
 *
 * @param balancer null if there is none
 */
record Found(Whose whose, Balancer balancer) {
    enum Whose { NOBODYS, OURS, LEGACY, ANOTHER_CLUSTERS }

    static String nameOf(ServiceRef service) {
        return "lb-" + service.getUid();
    }

    /** The name that this cloud's former controller gave a balancer. */
    static String legacyNameOf(ServiceRef service) {
        return "a" + service.getUid().replace("-", "");
    }

    static Found in(List<Balancer> balancers, ClusterRef cluster, ServiceRef service) {
        Found found = new Found(Whose.NOBODYS, null);
        for (Balancer one : balancers) {
            if (one.tags().cluster().equals(cluster.getUid()) && one.tags().service().equals(service.getUid())) return new Found(Whose.OURS, one);
            if (one.name().equals(legacyNameOf(service)) && one.tags().cluster().isEmpty()) found = new Found(Whose.LEGACY, one);
            else if (one.name().equals(nameOf(service)) && found.balancer == null) found = new Found(Whose.ANOTHER_CLUSTERS, one);
        }
        return found;
    }

    LoadBalancer describe(ServiceRef service) {
        return switch (whose) {
            case NOBODYS -> LoadBalancer.newBuilder().setService(service).setState(LoadBalancerState.LOAD_BALANCER_STATE_ABSENT).build();
            case ANOTHER_CLUSTERS -> LoadBalancer.newBuilder().setService(service).setState(LoadBalancerState.LOAD_BALANCER_STATE_NOT_OWNED).build();
            default -> describe(balancer);
        };
    }

    /** Describes a balancer that this cluster or a former controller owns. */
    static LoadBalancer describe(Balancer one) {
        Balancer.Tags tags = one.tags();
        LoadBalancer.Builder answer = LoadBalancer.newBuilder()
                .setService(ServiceRef.newBuilder().setNamespace(tags.namespace()).setName(tags.name()).setUid(tags.service()))
                .setId(one.id())
                .setName(one.name())
                .setState(one.serves() ? LoadBalancerState.LOAD_BALANCER_STATE_ACTIVE : LoadBalancerState.LOAD_BALANCER_STATE_PENDING)
                .setAppliedDigest(tags.digest())
                .setOwnership(tags.cluster().isEmpty() ? Ownership.OWNERSHIP_BY_LEGACY_NAME : Ownership.OWNERSHIP_BY_UID);
        if (!tags.applied().isEmpty()) answer.setSyncState(one.drifted() ? SyncState.SYNC_STATE_DRIFTED : SyncState.SYNC_STATE_IN_SYNC);
        for (String address : one.addresses()) {
            answer.addIngress(LoadBalancerIngress.newBuilder().setIp(address).setIpMode(IngressIpMode.INGRESS_IP_MODE_VIP));
        }
        return answer.build();
    }
}
