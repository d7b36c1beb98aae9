package stub;

import ccm.cloudprovider.v1alpha1.BatchGetInstancesRequest;
import ccm.cloudprovider.v1alpha1.BatchGetInstancesResponse;
import ccm.cloudprovider.v1alpha1.ErrorReason;
import ccm.cloudprovider.v1alpha1.Instance;
import ccm.cloudprovider.v1alpha1.InstanceQuery;
import ccm.cloudprovider.v1alpha1.InstanceResult;
import ccm.cloudprovider.v1alpha1.InstanceState;
import ccm.cloudprovider.v1alpha1.InstanceView;
import ccm.cloudprovider.v1alpha1.InstancesGrpc;
import ccm.cloudprovider.v1alpha1.ListInstancesRequest;
import ccm.cloudprovider.v1alpha1.ListInstancesResponse;
import ccm.cloudprovider.v1alpha1.ListedInstance;
import ccm.cloudprovider.v1alpha1.NodeAddress;
import ccm.cloudprovider.v1alpha1.NodeAddressType;
import ccm.cloudprovider.v1alpha1.NodeRef;
import ccm.cloudprovider.v1alpha1.UnreachableLocation;
import com.google.protobuf.Timestamp;
import com.google.protobuf.util.Timestamps;
import io.grpc.stub.StreamObserver;
import java.util.List;
import stub.cloud.Cloud;
import stub.cloud.Machine;

/** Serves instances, with one call to the cloud for each batch, whatever its size. */
final class InstancesService extends InstancesGrpc.InstancesImplBase {
    private final Calls calls;
    private final Cloud cloud;

    InstancesService(Calls calls, Cloud cloud) {
        this.calls = calls;
        this.cloud = cloud;
    }

    @Override
    public void batchGetInstances(BatchGetInstancesRequest request, StreamObserver<BatchGetInstancesResponse> out) {
        calls.read(out, gate -> {
            Shape.check(request);
            List<NodeRef> nodes = request.getQueriesList().stream().map(InstanceQuery::getNode).toList();
            Timestamp now = Timestamps.now();
            Looked found = gate.call(() -> Looked.up(cloud, nodes));
            BatchGetInstancesResponse.Builder answer = BatchGetInstancesResponse.newBuilder();
            for (InstanceQuery query : request.getQueriesList()) {
                answer.addResults(result(found, request.getCluster().getUid(), query, request.getView()).setObservedAt(now));
            }
            return answer.build();
        });
    }

    @Override
    public void listInstances(ListInstancesRequest request, StreamObserver<ListInstancesResponse> out) {
        calls.read(out, gate -> {
            String cluster = request.getCluster().getUid();
            Shape.check(request);
            int size = Shape.page(request.getPageSize());
            String list = "instances " + cluster;
            String after = Pager.after(list, request.getPageToken());
            Cloud.Found found = gate.call(() -> cloud.machinesOf(cluster));
            Pager.Page<Machine> page = Pager.page(list, after, size, found.machines().stream(), Machine::id);
            ListInstancesResponse.Builder answer = ListInstancesResponse.newBuilder().setNextPageToken(page.next());
            for (Machine one : page.items()) {
                answer.addInstances(ListedInstance.newBuilder().setState(state(one)).setInstance(describe(one, request.getView())).setNodeName(one.name()));
            }
            for (String zone : found.lostZones()) {
                answer.addUnreachable(UnreachableLocation.newBuilder().setLocation(zone).setError(Looked.unreachable(zone).toItem()));
            }
            return answer.build();
        });
    }

    private static InstanceResult.Builder result(Looked found, String cluster, InstanceQuery query, InstanceView view) {
        NodeRef node = query.getNode();
        String given = node.getProviderId();
        InstanceResult.Builder answer = InstanceResult.newBuilder().setKey(query.getKey());
        // This provider never issues such an ID, so there is no zone to look in.
        if (!given.isEmpty() && !(given.startsWith(Looked.PREFIX) && Looked.idOf(given).contains("/"))) {
            return answer.setState(InstanceState.INSTANCE_STATE_NOT_OWNED);
        }
        List<Machine> machines = found.of(node);
        if (machines.size() > 1) {
            String message = machines.size() + " instances match node " + node.getName();
            return answer.setError(Refusal.of(ErrorReason.ERROR_REASON_INSTANCE_AMBIGUOUS, message).toItem());
        }
        if (machines.isEmpty()) {
            Refusal unknown = found.unknown(node);
            if (unknown != null) return answer.setError(unknown.toItem());
            // A lookup by name alone may miss an instance: only a provider ID proves absence.
            return answer.setState(InstanceState.INSTANCE_STATE_ABSENT).setAuthoritative(!given.isEmpty());
        }
        Machine machine = machines.get(0);
        if (!machine.cluster().equals(cluster) && !machine.cluster().isEmpty()) return answer.setState(InstanceState.INSTANCE_STATE_NOT_OWNED);
        return answer.setState(state(machine)).setAuthoritative(true).setInstance(describe(machine, view));
    }

    private static InstanceState state(Machine machine) {
        return machine.running() ? InstanceState.INSTANCE_STATE_RUNNING : InstanceState.INSTANCE_STATE_STOPPED;
    }

    /** A view that this build does not know is UNRECOGNIZED in Java, and gets every field, as ALL does. */
    private static Instance describe(Machine machine, InstanceView view) {
        Instance.Builder answer = Instance.newBuilder().setProviderId(Looked.PREFIX + machine.id()).setName(machine.name());
        if (view == InstanceView.INSTANCE_VIEW_EXISTENCE) return answer.build();
        return answer.setInstanceType("small")
                .setZone(machine.zone())
                .setRegion("eu-1")
                .addAddresses(NodeAddress.newBuilder().setType(NodeAddressType.NODE_ADDRESS_TYPE_INTERNAL_IP).setAddress(machine.address()))
                .build();
    }
}
