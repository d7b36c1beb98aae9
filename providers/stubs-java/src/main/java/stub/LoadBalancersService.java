package stub;

import ccm.cloudprovider.v1alpha1.BackendSet;
import ccm.cloudprovider.v1alpha1.BatchUpdateLoadBalancersRequest;
import ccm.cloudprovider.v1alpha1.BatchUpdateLoadBalancersResponse;
import ccm.cloudprovider.v1alpha1.ClusterRef;
import ccm.cloudprovider.v1alpha1.DeleteLoadBalancerRequest;
import ccm.cloudprovider.v1alpha1.DeleteLoadBalancerResponse;
import ccm.cloudprovider.v1alpha1.EnsureLoadBalancerRequest;
import ccm.cloudprovider.v1alpha1.EnsureLoadBalancerResponse;
import ccm.cloudprovider.v1alpha1.Fencing;
import ccm.cloudprovider.v1alpha1.GetLoadBalancerRequest;
import ccm.cloudprovider.v1alpha1.GetLoadBalancerResponse;
import ccm.cloudprovider.v1alpha1.ListLoadBalancersRequest;
import ccm.cloudprovider.v1alpha1.ListLoadBalancersResponse;
import ccm.cloudprovider.v1alpha1.LoadBalancerUpdate;
import ccm.cloudprovider.v1alpha1.LoadBalancersGrpc;
import io.grpc.stub.StreamObserver;
import java.util.List;
import stub.Leadership.Term;
import stub.Mutations.Subject;
import stub.cloud.Cloud;

/** The RPCs of load balancers: checks leadership and the shape of the request, and names its Services. {@link Balancers} and {@link Ensure} do the work. */
final class LoadBalancersService extends LoadBalancersGrpc.LoadBalancersImplBase {
    private final Calls calls;
    private final Leadership leadership;
    private final Mutations mutations;
    private final Balancers balancers;
    private final Ensure ensure;
    private final BackendSets sets = new BackendSets();

    LoadBalancersService(Calls calls, Leadership leadership, Mutations mutations, Cloud cloud) {
        this.calls = calls;
        this.leadership = leadership;
        this.mutations = mutations;
        balancers = new Balancers(cloud);
        ensure = new Ensure(cloud, balancers);
    }

    @Override
    public void getLoadBalancer(GetLoadBalancerRequest request, StreamObserver<GetLoadBalancerResponse> out) {
        calls.read(out, gate -> {
            Shape.check(request);
            return GetLoadBalancerResponse.newBuilder().setLoadBalancer(balancers.get(gate, request.getCluster(), request.getService())).build();
        });
    }

    @Override
    public void listLoadBalancers(ListLoadBalancersRequest request, StreamObserver<ListLoadBalancersResponse> out) {
        calls.read(out, gate -> {
            Shape.check(request);
            int size = Shape.page(request.getPageSize());
            String list = "balancers " + request.getCluster().getUid();
            String after = Pager.after(list, request.getPageToken());
            var page = Pager.page(list, after, size, balancers.list(gate, request.getCluster()).stream(), one -> one.getId());
            return ListLoadBalancersResponse.newBuilder().addAllLoadBalancers(page.items()).setNextPageToken(page.next()).build();
        });
    }

    @Override
    public void ensureLoadBalancer(EnsureLoadBalancerRequest request, StreamObserver<EnsureLoadBalancerResponse> out) {
        calls.answer(out, () -> {
            Term term = leadership.admit(request.getCluster().getUid(), request.getFencing());
            Shape.check(request);
            if (request.getService().getPortsCount() == 0) throw Refusal.outOfShape("service.ports", "is empty");
            BackendSet whole = sets.whole(request.getCluster().getUid(), request.getBackends());
            EnsureLoadBalancerRequest plain = request.toBuilder().clearFencing().setBackends(whole).build();
            Subject about = subject(request.getCluster(), request.getService().getRef().getUid(), request.getRevision());
            return mutations.run(term, plain, List.of(about), (gate, refused) -> {
                for (Refusal why : refused.values()) throw why;
                return ensure.run(gate, plain);
            });
        });
    }

    @Override
    public void batchUpdateLoadBalancers(BatchUpdateLoadBalancersRequest request, StreamObserver<BatchUpdateLoadBalancersResponse> out) {
        calls.answer(out, () -> {
            Term term = leadership.admit(request.getCluster().getUid(), request.getFencing());
            Shape.check(request);
            BackendSet whole = sets.whole(request.getCluster().getUid(), request.getBackends());
            BatchUpdateLoadBalancersRequest plain = request.toBuilder().clearFencing().setBackends(whole).build();
            List<Subject> about = request.getItemsList().stream()
                    .map(item -> subject(request.getCluster(), item.getService().getRef().getUid(), item.getRevision()))
                    .toList();
            return mutations.run(term, plain, about, (gate, refused) -> balancers.update(gate, plain, refused));
        });
    }

    @Override
    public void deleteLoadBalancer(DeleteLoadBalancerRequest request, StreamObserver<DeleteLoadBalancerResponse> out) {
        calls.answer(out, () -> {
            Term term = leadership.admit(request.getCluster().getUid(), request.getFencing());
            Shape.check(request);
            DeleteLoadBalancerRequest plain = request.toBuilder().clearFencing().build();
            Subject about = subject(request.getCluster(), request.getService().getUid(), request.getRevision());
            return mutations.run(term, plain, List.of(about), (gate, refused) -> {
                for (Refusal why : refused.values()) throw why;
                return balancers.delete(gate, plain);
            });
        });
    }

    private static Subject subject(ClusterRef cluster, String service, long revision) {
        return new Subject(cluster.getUid(), service, revision);
    }
}
