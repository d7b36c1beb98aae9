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

/** Creates a balancer or configures it as requested. Each call to the cloud passes the gate, so that none starts after the term has ended. */
final class Ensure {
    private final Cloud cloud;
    private final Balancers balancers;

    Ensure(Cloud cloud, Balancers balancers) {
        this.cloud = cloud;
        this.balancers = balancers;
    }

    EnsureLoadBalancerResponse run(Gate gate, EnsureLoadBalancerRequest request) {
        // Refuse what this cloud cannot do before changing anything, so that a working balancer keeps working.
        Config config = Wanted.config(request.getService());
        ServiceRef service = request.getService().getRef();
        ClusterRef cluster = request.getCluster();

        // Look it up in the cloud; do not rely on an earlier answer: it may have been lost, or this process may have restarted.
        Found found = Found.in(balancers.find(gate, List.of(service)), cluster, service);
        if (found.whose() == Whose.ANOTHER_CLUSTERS) {
            throw Refusal.of(ErrorReason.ERROR_REASON_OWNED_BY_OTHER_CLUSTER, "load balancer " + found.balancer().name() + " belongs to another cluster");
        }
        if (found.whose() == Whose.LEGACY && request.getAdoption() != Adoption.ADOPTION_ADOPT_BY_LEGACY_NAME) {
            throw Refusal.of(ErrorReason.ERROR_REASON_ADOPTION_REFUSED, "load balancer " + found.balancer().name() + " belongs to a former controller: request adoption");
        }
        List<String> targets = Balancers.targets(cluster, request.getBackends(), balancers.machines(gate, request.getBackends()));
        Tags ours = new Tags(cluster.getUid(), cluster.getName(), service.getUid(), service.getNamespace(), service.getName(), "", "");
        Tags done = ours.applied(Balancer.applied(config, targets), request.getDesiredDigest());

        Balancer balancer = found.balancer() != null ? found.balancer() : gate.call(() -> cloud.create(Found.nameOf(service), ours, config, targets));
        // Record the digest last: it claims that the cloud has everything.
        boolean serves = balancer.serves();
        Tags tags = serves ? done : ours;
        if (!balancer.tags().equals(tags) || !balancer.config().equals(config) || !balancer.targets().equals(targets)) {
            String id = balancer.id();
            balancer = gate.call(() -> cloud.configure(id, tags, config, targets));
        }
        EnsureLoadBalancerResponse.Builder answer = EnsureLoadBalancerResponse.newBuilder().setLoadBalancer(Found.describe(balancer));
        // Slow provisioning is not an error, and nothing to wait for here: the host repeats the request.
        if (!serves) answer.setInProgress(Balancers.later());
        return answer.build();
    }
}
