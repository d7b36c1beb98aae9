package stub;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ccm.cloudprovider.v1alpha1.*;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import stub.cloud.Balancer;
import stub.cloud.Cloud;

class BalancersTest {
    private static final ClusterRef CLUSTER = ClusterRef.newBuilder().setUid("c").setName("prod").build();
    private static final ServiceRef SERVICE = ServiceRef.newBuilder().setNamespace("default").setName("web").setUid("s-1").build();

    @TempDir Path folder;
    private final Gate gate = new Gate(() -> false);
    private Cloud cloud;
    private Balancers balancers;
    private Ensure ensure;

    @BeforeEach
    void open() throws IOException {
        cloud = new Cloud(folder.resolve("cloud.json"));
        balancers = new Balancers(cloud);
        ensure = new Ensure(cloud, balancers);
    }

    private static EnsureLoadBalancerRequest.Builder wish(String digest) {
        ServicePort port = ServicePort.newBuilder().setProtocol(Protocol.PROTOCOL_UDP).setPort(53).setNodePort(30053).build();
        Service service = Service.newBuilder().setRef(SERVICE).addPorts(port).addSourceRanges("192.0.2.0/24").addIpFamilies(IpFamily.IP_FAMILY_IPV6).build();
        return EnsureLoadBalancerRequest.newBuilder().setCluster(CLUSTER).setService(service).setDesiredDigest(digest);
    }

    private static DeleteLoadBalancerRequest removal() {
        return DeleteLoadBalancerRequest.newBuilder().setCluster(CLUSTER).setService(SERVICE).build();
    }

    private Balancer inTheCloud() throws InterruptedException {
        List<Balancer> all = cloud.balancers(List.of("s-1"), List.of(Found.legacyNameOf(SERVICE)));
        assertEquals(1, all.size());
        return all.get(0);
    }

    private static String reason(Runnable what) {
        return Reasons.of(assertThrows(Refusal.class, what::run));
    }

    @Test
    void theCloudHasWhatTheServiceAsksFor() throws InterruptedException {
        LoadBalancer made = ensure.run(gate, wish("d1").build()).getLoadBalancer();
        Balancer.Config config = inTheCloud().config();
        assertEquals(List.of(new Balancer.Listener("UDP", 53, 30053)), config.listeners());
        assertEquals(List.of("192.0.2.0/24"), config.sourceRanges());
        assertEquals("2001:db8::1", made.getIngress(0).getIp());
        assertEquals("d1", made.getAppliedDigest());
        assertEquals(made, ensure.run(gate, wish("d1").build()).getLoadBalancer());
        assertEquals(List.of(made), balancers.list(gate, CLUSTER));
        balancers.delete(gate, removal());
        assertEquals(LoadBalancerState.LOAD_BALANCER_STATE_ABSENT, balancers.get(gate, CLUSTER, SERVICE).getState());
    }

    @Test
    void whatOutlivesTheProcessIsEnoughToGoOn() throws IOException {
        LoadBalancer made = ensure.run(gate, wish("d1").build()).getLoadBalancer();
        Balancers after = new Balancers(new Cloud(folder.resolve("cloud.json")));
        assertEquals(made, after.get(gate, CLUSTER, SERVICE));
    }

    @Test
    void anotherClustersBalancerIsLeftAlone() throws InterruptedException {
        ensure.run(gate, wish("d1").build());
        ClusterRef other = ClusterRef.newBuilder().setUid("another").build();
        assertEquals("OWNED_BY_OTHER_CLUSTER", reason(() -> ensure.run(gate, wish("d2").setCluster(other).build())));
        balancers.delete(gate, removal().toBuilder().setCluster(other).build());
        assertEquals(LoadBalancerState.LOAD_BALANCER_STATE_NOT_OWNED, balancers.get(gate, other, SERVICE).getState());
        assertEquals("d1", inTheCloud().tags().digest());
    }

    @Test
    void aFormerControllersBalancerIsTakenOverOnlyWhenAsked() throws InterruptedException {
        var legacy = new Balancer.Tags("", "prod", "", "default", "web", "", "");
        cloud.create(Found.legacyNameOf(SERVICE), legacy, new Balancer.Config(List.of(), List.of(), List.of("IPv4"), 0, 0), List.of());
        assertEquals("ADOPTION_REFUSED", reason(() -> ensure.run(gate, wish("d1").build())));
        balancers.delete(gate, removal());
        assertEquals("", inTheCloud().tags().cluster());
        ensure.run(gate, wish("d1").setAdoption(Adoption.ADOPTION_ADOPT_BY_LEGACY_NAME).build());
        assertEquals("c", inTheCloud().tags().cluster());
    }

    @Test
    void anUpdateReplacesBackendsAloneAndMakesNothing() throws InterruptedException {
        LoadBalancerUpdate item = LoadBalancerUpdate.newBuilder().setService(wish("").getService().toBuilder().clearSourceRanges()).setDesiredDigest("d2").build();
        var request = BatchUpdateLoadBalancersRequest.newBuilder().setCluster(CLUSTER).setBackends(BackendSet.getDefaultInstance()).addItems(item).build();
        var absent = balancers.update(gate, request, Map.of()).getResults(0);
        assertEquals(ErrorReason.ERROR_REASON_NEEDS_ENSURE, absent.getError().getReason());
        assertTrue(cloud.balancersOf("c", "prod").isEmpty());
        ensure.run(gate, wish("d1").build());
        assertEquals(UpdateOutcome.UPDATE_OUTCOME_UPDATED, balancers.update(gate, request, Map.of()).getResults(0).getOutcome());
        assertEquals(List.of("192.0.2.0/24"), inTheCloud().config().sourceRanges());
        assertEquals("d2", inTheCloud().tags().digest());
    }

    @Test
    void whatWasChangedByOthersIsSeenAndMended() throws InterruptedException {
        ensure.run(gate, wish("d1").build());
        Balancer there = inTheCloud();
        cloud.configure(there.id(), there.tags(), new Balancer.Config(List.of(), List.of(), List.of("IPv6"), 0, 0), List.of());
        assertEquals(SyncState.SYNC_STATE_DRIFTED, balancers.get(gate, CLUSTER, SERVICE).getSyncState());
        assertEquals(SyncState.SYNC_STATE_IN_SYNC, ensure.run(gate, wish("d1").build()).getLoadBalancer().getSyncState());
    }

    @Test
    void whatThisCloudDoesNotHaveIsRefusedByName() {
        var sctp = wish("d1");
        sctp.getServiceBuilder().getPortsBuilder(0).setProtocol(Protocol.PROTOCOL_SCTP);
        var ofANewerHost = wish("d1");
        ofANewerHost.getServiceBuilder().getPortsBuilder(0).setProtocolValue(99);
        assertEquals("UNSUPPORTED_FEATURE", reason(() -> ensure.run(gate, sctp.build())));
        assertEquals("UNSUPPORTED_FEATURE", reason(() -> ensure.run(gate, ofANewerHost.build())));
    }
}
