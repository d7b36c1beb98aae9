package stub;

import ccm.cloudprovider.v1alpha1.Adoption;
import ccm.cloudprovider.v1alpha1.ClusterRef;
import ccm.cloudprovider.v1alpha1.EnsureLoadBalancerRequest;
import ccm.cloudprovider.v1alpha1.EnsureLoadBalancerResponse;
import ccm.cloudprovider.v1alpha1.ErrorReason;
import ccm.cloudprovider.v1alpha1.ServiceRef;
import java.util.List;
import stub.Found.Whose;
import stub.cloud.Balancer;
import stub.cloud.Balancer.Config;
import stub.cloud.Balancer.Tags;
import stub.cloud.Cloud;

/** Makes a balancer be as wanted. Each call of the cloud goes through the gate: when leadership ends, the next one does not begin. */
final class Ensure {
    private final Cloud cloud;
    private final Balancers balancers;

    Ensure(Cloud cloud, Balancers balancers) {
        this.cloud = cloud;
        this.balancers = balancers;
    }

    EnsureLoadBalancerResponse run(Gate gate, EnsureLoadBalancerRequest request) {
        // What makes no sense is refused before anything is touched: what works goes on working.
        Config config = Wanted.config(request.getService());
        ServiceRef service = request.getService().getRef();
        ClusterRef cluster = request.getCluster();

        // Found by its tags, never by what a former answer told: that may be lost, and this process may be new.
        Found found = Found.in(balancers.find(gate, List.of(service)), cluster, service);
        if (found.whose() == Whose.ANOTHER_CLUSTERS) {
            throw Refusal.of(ErrorReason.ERROR_REASON_OWNED_BY_OTHER_CLUSTER, "load balancer " + found.balancer().name() + " is another cluster's");
        }
        if (found.whose() == Whose.LEGACY && request.getAdoption() != Adoption.ADOPTION_ADOPT_BY_LEGACY_NAME) {
            throw Refusal.of(ErrorReason.ERROR_REASON_ADOPTION_REFUSED, "load balancer " + found.balancer().name() + " is a former controller's");
        }
        List<String> targets = Balancers.targets(cluster, request.getBackends(), balancers.machines(gate, List.of(request.getBackends())));
        Tags ours = new Tags(cluster.getUid(), cluster.getName(), service.getUid(), service.getNamespace(), service.getName(), "", "");
        Tags done = ours.applied(Balancer.applied(config, targets), request.getDesiredDigest());

        Balancer balancer = found.balancer() != null ? found.balancer() : gate.call(() -> cloud.create(Found.nameOf(service), ours, config, targets));
        // The digest is noted last: until the cloud has all of it, nobody may believe so.
        boolean serves = balancer.serves();
        Tags tags = serves ? done : ours;
        if (!balancer.tags().equals(tags) || !balancer.config().equals(config) || !balancer.targets().equals(targets)) {
            String id = balancer.id();
            balancer = gate.call(() -> cloud.configure(id, tags, config, targets));
        }
        EnsureLoadBalancerResponse.Builder answer = EnsureLoadBalancerResponse.newBuilder().setLoadBalancer(Found.describe(balancer));
        // Work that merely takes long is no error, and no reason to wait here: the host asks again with the same request.
        if (!serves) answer.setInProgress(Balancers.later());
        return answer.build();
    }
}
