package stub;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ccm.cloudprovider.v1alpha1.*;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import io.grpc.health.v1.HealthCheckRequest;
import io.grpc.health.v1.HealthCheckResponse;
import io.grpc.health.v1.HealthGrpc;
import io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.NettyChannelBuilder;
import io.netty.channel.ChannelOption;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import io.netty.channel.epoll.EpollEventLoopGroup;
import io.netty.channel.unix.DomainSocketAddress;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.KeyStore;
import java.util.Base64;
import java.util.Iterator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import stub.cloud.Cloud;

/** The provider as a host sees it. */
class ProviderTest {
    private static final ClusterRef CLUSTER = ClusterRef.newBuilder().setUid("c").build();

    @TempDir Path folder;
    private Flags flags;
    private Provider provider;
    private ManagedChannel channel;

    @BeforeEach
    void where() {
        flags = new Flags(folder.resolve("sockets/p.sock"), null, null, folder.resolve("cloud.json"), null);
    }

    @AfterEach
    void end() {
        if (channel != null) channel.shutdownNow();
        if (provider != null) provider.stop();
    }

    private void start() throws IOException {
        provider = Provider.start(flags, new Cloud(flags.cloud()));
        channel = NettyChannelBuilder.forAddress(new DomainSocketAddress(flags.socket().toFile()))
                .channelType(EpollDomainSocketChannel.class)
                .eventLoopGroup(new EpollEventLoopGroup(1))
                .withOption(ChannelOption.SO_KEEPALIVE, null)
                .usePlaintext()
                .build();
    }

    private static BatchGetInstancesRequest.Builder queries(String name, int count) {
        BatchGetInstancesRequest.Builder request = BatchGetInstancesRequest.newBuilder().setCluster(CLUSTER);
        for (int at = 0; at < count; at++) {
            request.addQueries(InstanceQuery.newBuilder().setKey("key" + at).setNode(NodeRef.newBuilder().setName(name)));
        }
        return request;
    }

    @Test
    void errorsCarryTheReasonOfTheContract() throws IOException {
        start();
        var instances = InstancesGrpc.newBlockingStub(channel);
        var error = assertThrows(StatusRuntimeException.class, () -> instances.batchGetInstances(queries("n", 501).build()));
        assertEquals("BATCH_TOO_LARGE", Reasons.of(error));
        error = assertThrows(StatusRuntimeException.class, () -> instances.batchGetInstances(queries("n", 1).clearCluster().build()));
        assertEquals("INVALID_ARGUMENT_SHAPE", Reasons.of(error));
    }

    @Test
    void messagesAboveFourMebibytesAreTaken() throws IOException {
        start();
        NodeRef large = NodeRef.newBuilder().setName("n").putLabels("example.com/large", "x".repeat(5 << 20)).build();
        var request = queries("n", 0).addQueries(InstanceQuery.newBuilder().setKey("k").setNode(large)).build();
        assertEquals(1, InstancesGrpc.newBlockingStub(channel).batchGetInstances(request).getResultsCount());
    }

    @Test
    void aSocketIsForItsOwnerAndGroupAndInAFolderOfItsOwn() throws IOException {
        start();
        assertEquals("rw-rw----", PosixFilePermissions.toString(Files.getPosixFilePermissions(flags.socket())));
        assertEquals("rwx------", PosixFilePermissions.toString(Files.getPosixFilePermissions(flags.socket().getParent())));
    }

    @Test
    void aSocketInUseStaysAndAStaleOneIsReplaced() throws IOException {
        Files.createDirectory(flags.socket().getParent(), PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwxr-x---")));
        try (ServerSocketChannel other = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            other.bind(UnixDomainSocketAddress.of(flags.socket()));
            assertThrows(IOException.class, this::start);
        }
        start();
        assertTrue(CloudProviderGrpc.newBlockingStub(channel).getCapabilities(GetCapabilitiesRequest.getDefaultInstance()).getCapabilitiesCount() > 0);
    }

    @Test
    void aFolderThatOthersEnterIsRefused() throws IOException {
        Files.createDirectory(flags.socket().getParent());
        Files.setPosixFilePermissions(flags.socket().getParent(), PosixFilePermissions.fromString("rwxr-xr-x"));
        assertThrows(IOException.class, this::start);
    }

    @Test
    void aStopIsToldToWatchersOfHealthAndDoesNotWaitForThem() throws IOException {
        start();
        Iterator<HealthCheckResponse> told = HealthGrpc.newBlockingStub(channel).watch(HealthCheckRequest.getDefaultInstance());
        assertEquals(HealthCheckResponse.ServingStatus.SERVING, told.next().getStatus());
        provider.stop();
        provider = null;
        assertEquals(HealthCheckResponse.ServingStatus.NOT_SERVING, told.next().getStatus());
        assertThrows(StatusRuntimeException.class, told::hasNext);
    }

    @Test
    void overTcpOnlyWhoShowsACertificateIsServed() throws Exception {
        Path tls = Files.createDirectory(folder.resolve("tls"));
        certificate(tls);
        flags = new Flags(null, new InetSocketAddress("127.0.0.1", 0), tls, flags.cloud(), null);
        provider = Provider.start(flags, new Cloud(flags.cloud()));
        assertTrue(capabilities(tls, true), "with a certificate");
        assertFalse(capabilities(tls, false), "without one");
    }

    private boolean capabilities(Path tls, boolean withCertificate) throws IOException {
        var context = GrpcSslContexts.forClient().trustManager(tls.resolve("ca.crt").toFile());
        if (withCertificate) context.keyManager(tls.resolve("tls.crt").toFile(), tls.resolve("tls.key").toFile());
        ManagedChannel secure = NettyChannelBuilder.forAddress((InetSocketAddress) provider.where()).sslContext(context.build()).build();
        try {
            CloudProviderGrpc.newBlockingStub(secure).getCapabilities(GetCapabilitiesRequest.getDefaultInstance());
            return true;
        } catch (StatusRuntimeException refused) {
            return false;
        } finally {
            secure.shutdownNow();
        }
    }

    /** A self-signed certificate. */
    private static void certificate(Path tls) throws Exception {
        String password = "changeit";
        Path store = tls.resolve("store.p12");
        String keytool = Path.of(System.getProperty("java.home"), "bin", "keytool").toString();
        int code = new ProcessBuilder(
                        keytool, "-genkeypair", "-alias", "it", "-keyalg", "EC", "-dname", "CN=stub", "-ext", "SAN=IP:127.0.0.1",
                        "-ext", "BC=ca:true", "-storetype", "PKCS12", "-keystore", store.toString(), "-storepass", password)
                .inheritIO()
                .start()
                .waitFor();
        assertEquals(0, code);
        KeyStore keys = KeyStore.getInstance(store.toFile(), password.toCharArray());
        String certificate = pem("CERTIFICATE", keys.getCertificate("it").getEncoded());
        Files.writeString(tls.resolve("ca.crt"), certificate);
        Files.writeString(tls.resolve("tls.crt"), certificate);
        Files.writeString(tls.resolve("tls.key"), pem("PRIVATE KEY", keys.getKey("it", password.toCharArray()).getEncoded()));
    }

    private static String pem(String what, byte[] bytes) {
        return "-----BEGIN " + what + "-----\n" + Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(bytes) + "\n-----END " + what + "-----\n";
    }
}
