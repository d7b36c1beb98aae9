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
            Shape.cluster(request.getCluster());
            Shape.service("service", request.getService());
            return GetLoadBalancerResponse.newBuilder().setLoadBalancer(balancers.get(gate, request.getCluster(), request.getService())).build();
        });
    }

    @Override
    public void listLoadBalancers(ListLoadBalancersRequest request, StreamObserver<ListLoadBalancersResponse> out) {
        calls.read(out, gate -> {
            int size = Shape.page(request.getCluster(), request.getPageSize(), request.getPageToken());
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
            mutation(request.getCluster(), request.hasFencing());
            Shape.service("service.ref", request.getService().getRef());
            Shape.present("service.ports", request.getService().getPortsCount() > 0);
            Shape.present("backends", request.hasBackends());
            Shape.backends("backends", request.getBackends());
            Shape.digest("desired_digest", request.getDesiredDigest());
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
            check(request);
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
            mutation(request.getCluster(), request.hasFencing());
            Shape.service("service", request.getService());
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

    private static void mutation(ClusterRef cluster, boolean fencing) {
        Shape.cluster(cluster);
        Shape.present("fencing", fencing);
    }

    private static void check(BatchUpdateLoadBalancersRequest request) {
        mutation(request.getCluster(), request.hasFencing());
        Shape.batch("items", request.getItemsCount());
        Shape.present("backends", request.hasBackends());
        Shape.backends("backends", request.getBackends());
        Shape.Keys keys = new Shape.Keys();
        for (int at = 0; at < request.getItemsCount(); at++) {
            LoadBalancerUpdate item = request.getItems(at);
            Shape.service("items[" + at + "].service.ref", item.getService().getRef());
            Shape.digest("items[" + at + "].desired_digest", item.getDesiredDigest());
            keys.add("items[" + at + "].service.ref.uid", item.getService().getRef().getUid());
        }
    }
}
