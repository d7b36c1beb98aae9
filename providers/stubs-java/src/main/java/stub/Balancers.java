package stub;

import ccm.cloudprovider.v1alpha1.Adoption;
import ccm.cloudprovider.v1alpha1.BackendSet;
import ccm.cloudprovider.v1alpha1.BatchUpdateLoadBalancersRequest;
import ccm.cloudprovider.v1alpha1.BatchUpdateLoadBalancersResponse;
import ccm.cloudprovider.v1alpha1.ClusterRef;
import ccm.cloudprovider.v1alpha1.DeleteLoadBalancerRequest;
import ccm.cloudprovider.v1alpha1.DeleteLoadBalancerResponse;
import ccm.cloudprovider.v1alpha1.ErrorReason;
import ccm.cloudprovider.v1alpha1.InProgress;
import ccm.cloudprovider.v1alpha1.LoadBalancer;
import ccm.cloudprovider.v1alpha1.LoadBalancerUpdate;
import ccm.cloudprovider.v1alpha1.LoadBalancerUpdateResult;
import ccm.cloudprovider.v1alpha1.NodeRef;
import ccm.cloudprovider.v1alpha1.ServiceRef;
import ccm.cloudprovider.v1alpha1.UpdateOutcome;
import com.google.protobuf.util.Durations;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import stub.Found.Whose;
import stub.cloud.Balancer;
import stub.cloud.Balancer.Retarget;
import stub.cloud.Balancer.Tags;
import stub.cloud.Cloud;
import stub.cloud.Machine;

/** Reads, retargets and deletes balancers; {@link Ensure} creates and configures them. Finds them by tags and name, so that a lost answer or a restart does no harm. */
final class Balancers {
    private static final long ASK_AGAIN_MILLIS = 500;

    private final Cloud cloud;

    Balancers(Cloud cloud) {
        this.cloud = cloud;
    }

    LoadBalancer get(Gate gate, ClusterRef cluster, ServiceRef service) {
        return Found.in(find(gate, List.of(service)), cluster, service).describe(service);
    }

    List<LoadBalancer> list(Gate gate, ClusterRef cluster) {
        return gate.call(() -> cloud.balancersOf(cluster.getUid(), cluster.getName())).stream().map(Found::describe).toList();
    }

    BatchUpdateLoadBalancersResponse update(Gate gate, BatchUpdateLoadBalancersRequest request, Map<String, Refusal> refused) {
        ClusterRef cluster = request.getCluster();
        List<ServiceRef> services = request.getItemsList().stream().map(item -> item.getService().getRef()).toList();
        List<Balancer> all = find(gate, services);
        Looked machines = machines(gate, request.getBackends());
        List<String> targets = targets(cluster, request.getBackends(), machines);
        List<Retarget> changes = new ArrayList<>();
        BatchUpdateLoadBalancersResponse.Builder answer = BatchUpdateLoadBalancersResponse.newBuilder();
        for (LoadBalancerUpdate item : request.getItemsList()) {
            ServiceRef service = item.getService().getRef();
            LoadBalancerUpdateResult.Builder result = answer.addResultsBuilder().setServiceUid(service.getUid());
            result.setOutcome(UpdateOutcome.UPDATE_OUTCOME_NOT_UPDATED);
            Found found = Found.in(all, cluster, service);
            Balancer balancer = found.balancer();
            if (refused.containsKey(service.getUid())) {
                result.setError(refused.get(service.getUid()).toItem());
            } else if (found.whose() != Whose.OURS || balancer.drifted()) {
                String message = "load balancer of " + service.getNamespace() + "/" + service.getName() + " is missing or differs from what was applied";
                result.setError(Refusal.of(ErrorReason.ERROR_REASON_NEEDS_ENSURE, message).toItem());
            } else if (!balancer.serves()) {
                result.setInProgress(later());
            } else {
                Tags done = balancer.tags().applied(Balancer.applied(balancer.config(), targets), item.getDesiredDigest());
                if (!balancer.tags().equals(done)) changes.add(new Retarget(balancer.id(), targets, done));
                result.setOutcome(UpdateOutcome.UPDATE_OUTCOME_UPDATED);
            }
        }
        if (!changes.isEmpty()) {
            gate.call(() -> {
                cloud.retarget(changes);
                return null;
            });
        }
        return answer.build();
    }

    DeleteLoadBalancerResponse delete(Gate gate, DeleteLoadBalancerRequest request) {
        Found found = Found.in(find(gate, List.of(request.getService())), request.getCluster(), request.getService());
        boolean adopt = request.getAdoption() == Adoption.ADOPTION_ADOPT_BY_LEGACY_NAME;
        if (found.whose() == Whose.OURS || found.whose() == Whose.LEGACY && adopt) {
            gate.call(() -> {
                cloud.delete(found.balancer().id());
                return null;
            });
        }
        return DeleteLoadBalancerResponse.getDefaultInstance();
    }

    List<Balancer> find(Gate gate, List<ServiceRef> services) {
        List<String> uids = services.stream().map(ServiceRef::getUid).toList();
        List<String> names = services.stream().flatMap(one -> List.of(Found.nameOf(one), Found.legacyNameOf(one)).stream()).toList();
        return gate.call(() -> cloud.balancers(uids, names));
    }

    Looked machines(Gate gate, BackendSet set) {
        return gate.call(() -> Looked.up(cloud, set.getNodesList()));
    }

    /**
     * The instance IDs of a backend set. Omits nodes that have no instance of this cluster: nothing could receive their traffic. Refuses a set of
     * which it cannot know that: an instance in a zone that does not answer may well serve.
     */
    static List<String> targets(ClusterRef cluster, BackendSet set, Looked machines) {
        for (NodeRef node : set.getNodesList()) {
            Refusal unknown = machines.of(node).isEmpty() ? machines.unknown(node) : null;
            if (unknown != null) throw unknown;
        }
        return set.getNodesList().stream()
                .flatMap(node -> machines.of(node).stream())
                .filter(one -> one.cluster().equals(cluster.getUid()) || one.cluster().isEmpty())
                .map(Machine::id)
                .sorted()
                .distinct()
                .toList();
    }

    static InProgress later() {
        return InProgress.newBuilder().setRetryAfter(Durations.fromMillis(ASK_AGAIN_MILLIS)).setReason("PROVISIONING").build();
    }
}
