package stub;

import ccm.cloudprovider.v1alpha1.Capability;
import ccm.cloudprovider.v1alpha1.CloudProviderGrpc;
import ccm.cloudprovider.v1alpha1.GetCapabilitiesRequest;
import ccm.cloudprovider.v1alpha1.GetCapabilitiesResponse;
import ccm.cloudprovider.v1alpha1.GetStatusRequest;
import ccm.cloudprovider.v1alpha1.GetStatusResponse;
import ccm.cloudprovider.v1alpha1.LeadRequest;
import ccm.cloudprovider.v1alpha1.LeadResponse;
import ccm.cloudprovider.v1alpha1.Limits;
import ccm.cloudprovider.v1alpha1.NodeFields;
import ccm.cloudprovider.v1alpha1.Wants;
import ccm.discovery.v1.DiscoveryGrpc;
import ccm.discovery.v1.DiscoveryOuterClass.GetInfoRequest;
import ccm.discovery.v1.DiscoveryOuterClass.GetInfoResponse;
import com.google.protobuf.util.Durations;
import io.grpc.stub.StreamObserver;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;

/** Answers for the provider's name, capabilities and status, and takes notice of the leader: all from memory, without a call to the cloud. */
final class Identity extends CloudProviderGrpc.CloudProviderImplBase {
    static final int MAX_MESSAGE_BYTES = 16 << 20;

    private final Calls calls;
    private final Leadership leadership;
    private final Pulse pulse;
    private final GetCapabilitiesResponse capabilities;

    Identity(Calls calls, Leadership leadership, Pulse pulse) {
        this.calls = calls;
        this.leadership = leadership;
        this.pulse = pulse;
        capabilities = GetCapabilitiesResponse.newBuilder()
                .addCapabilities(Capability.CAPABILITY_INSTANCES_LIST)
                .addCapabilities(Capability.CAPABILITY_ADOPTION)
                .addCapabilities(Capability.CAPABILITY_LOAD_BALANCER_DRIFT)
                .addCapabilities(Capability.CAPABILITY_LEADERSHIP)
                .addCapabilities(Capability.CAPABILITY_BACKEND_SETS_BY_DIGEST)
                .addCapabilities(Capability.CAPABILITY_DURABLE_DIGEST)
                .setLimits(Limits.newBuilder().setMaxMessageBytes(MAX_MESSAGE_BYTES))
                .setWants(Wants.newBuilder().setIdentity(NodeFields.newBuilder().setSystemUuid(true)))
                .build();
    }

    @Override
    public void getCapabilities(GetCapabilitiesRequest request, StreamObserver<GetCapabilitiesResponse> out) {
        calls.answer(out, () -> CompletableFuture.completedFuture(capabilities));
    }

    @Override
    public void getStatus(GetStatusRequest request, StreamObserver<GetStatusResponse> out) {
        calls.answer(out, () -> CompletableFuture.completedFuture(pulse.status()));
    }

    @Override
    public void lead(LeadRequest request, StreamObserver<LeadResponse> out) {
        calls.answer(out, () -> {
            Shape.check(request);
            var heardAt = Durations.fromNanos(leadership.time());
            leadership.hear(request);
            return CompletableFuture.completedFuture(
                    LeadResponse.newBuilder().setHeardAt(heardAt).build());
        });
    }

    /** The Discovery service, which every provider serves. */
    static final class Door extends DiscoveryGrpc.DiscoveryImplBase {
        private final Calls calls;
        private final GetInfoResponse info;

        Door(Calls calls, List<String> services) {
            this.calls = calls;
            // Hosts tie their tokens and caches to this process by its epoch.
            info = GetInfoResponse.newBuilder()
                    .setName("stub-java")
                    .setVendorVersion("0.1.0")
                    .addProviderIdPrefixes(Looked.PREFIX)
                    .addAllServices(services)
                    .setProcessEpoch(UUID.randomUUID().toString())
                    .build();
        }

        @Override
        public void getInfo(GetInfoRequest request, StreamObserver<GetInfoResponse> out) {
            calls.answer(out, () -> CompletableFuture.completedFuture(info));
        }
    }
}
