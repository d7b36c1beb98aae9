package stub;

import ccm.cloudprovider.v1alpha1.CloudProviderGrpc;
import ccm.cloudprovider.v1alpha1.InstancesGrpc;
import ccm.cloudprovider.v1alpha1.LoadBalancersGrpc;
import ccm.discovery.v1.DiscoveryGrpc;
import io.grpc.Server;
import io.grpc.health.v1.HealthCheckResponse.ServingStatus;
import io.grpc.health.v1.HealthGrpc;
import io.grpc.netty.NettyServerBuilder;
import io.grpc.protobuf.services.HealthStatusManager;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import stub.cloud.Cloud;

/** Wires all parts into a serving provider, and stops it. */
final class Provider {
    private static final long STOP_SECONDS = 25;
    private static final long FLUSH_SECONDS = 1;
    private static final List<String> SERVICES = List.of(
            DiscoveryGrpc.SERVICE_NAME, CloudProviderGrpc.SERVICE_NAME, InstancesGrpc.SERVICE_NAME, LoadBalancersGrpc.SERVICE_NAME,
            HealthGrpc.SERVICE_NAME);

    private final HealthStatusManager health = new HealthStatusManager();
    private final ScheduledExecutorService timers = Executors.newSingleThreadScheduledExecutor(work -> {
        Thread thread = new Thread(work, "timers");
        thread.setDaemon(true);
        return thread;
    });
    /** Runs the work of all calls, apart from gRPC's own threads: a stop waits for what runs here. */
    /** As many threads as calls run, which end soon after a burst: each holds memory of its own. */
    private final ExecutorService pool = new ThreadPoolExecutor(0, Integer.MAX_VALUE, 1, TimeUnit.SECONDS, new SynchronousQueue<>());
    private final Server server;

    private Provider(Flags flags, Cloud cloud) throws IOException {
        Calls calls = new Calls(pool);
        Leadership leadership = new Leadership(timers, System::nanoTime);
        Pulse pulse = new Pulse(cloud);
        pulse.start(timers);
        Path socket = flags.socket();
        NettyServerBuilder builder = socket != null ? Listener.atSocket(socket) : Listener.atAddress(flags.address(), flags.tls(), timers);
        server = builder.maxInboundMessageSize(Identity.MAX_MESSAGE_BYTES) // The default is 4 MiB.
                .addService(new Identity.Door(calls, SERVICES))
                .addService(new Identity(calls, leadership, pulse))
                .addService(new InstancesService(calls, cloud))
                .addService(new LoadBalancersService(calls, leadership, new Mutations(pool), cloud))
                .addService(health.getHealthService())
                .build();
        SERVICES.forEach(name -> health.setStatus(name, ServingStatus.SERVING));
        server.start();
        if (socket != null) Listener.guard(socket);
    }

    static Provider start(Flags flags, Cloud cloud) throws IOException {
        return new Provider(flags, cloud);
    }

    Object where() {
        return server.getListenSockets().get(0);
    }

    void await() throws InterruptedException {
        server.awaitTermination();
    }

    /** Reports NOT_SERVING, answers the running calls, and stops. The server alone would wait for health watches, which never end. */
    void stop() {
        try {
            health.enterTerminalState();
            server.shutdown();
            pool.shutdown();
            pool.awaitTermination(STOP_SECONDS, TimeUnit.SECONDS);
            server.awaitTermination(FLUSH_SECONDS, TimeUnit.SECONDS);
        } catch (InterruptedException again) {
            Thread.currentThread().interrupt();
        }
        server.shutdownNow();
        timers.shutdownNow();
    }
}
