package stub;

import io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.NettyServerBuilder;
import io.grpc.util.AdvancedTlsX509KeyManager;
import io.grpc.util.AdvancedTlsX509TrustManager;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.epoll.Epoll;
import io.netty.channel.epoll.EpollEventLoopGroup;
import io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.netty.channel.kqueue.KQueueEventLoopGroup;
import io.netty.channel.kqueue.KQueueServerDomainSocketChannel;
import io.netty.channel.unix.DomainSocketAddress;
import io.netty.handler.ssl.ClientAuth;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.GeneralSecurityException;
import java.util.Set;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/** Listens on a Unix socket in a directory that nobody else can enter, or on TCP with mutual TLS. */
final class Listener {
    private static final Set<PosixFilePermission> DIRECTORY = PosixFilePermissions.fromString("rwx------");
    private static final Set<PosixFilePermission> SOCKET = PosixFilePermissions.fromString("rw-rw----");
    private static final long REREAD_SECONDS = 5;

    private Listener() {}

    /** Creates the directory if it is missing, and removes a stale socket. */
    static NettyServerBuilder atSocket(Path path) throws IOException {
        Path directory = path.toAbsolutePath().getParent();
        Files.createDirectories(directory, PosixFilePermissions.asFileAttribute(DIRECTORY));
        Set<PosixFilePermission> mode = Files.getPosixFilePermissions(directory);
        mode.removeAll(PosixFilePermissions.fromString("rwxr-x---"));
        if (!mode.isEmpty()) throw new IOException("others can reach or replace a socket in " + directory + ": use mode 0700, or 0750 to share it with a group");
        if (Files.exists(path)) {
            if (answers(path)) throw new IOException("another process listens on " + path + ": end it or choose another --endpoint");
            Files.delete(path);
        }
        boolean linux = Epoll.isAvailable();
        EventLoopGroup group = linux ? new EpollEventLoopGroup() : new KQueueEventLoopGroup();
        return NettyServerBuilder.forAddress(new DomainSocketAddress(path.toFile()))
                .channelType(linux ? EpollServerDomainSocketChannel.class : KQueueServerDomainSocketChannel.class)
                .bossEventLoopGroup(group)
                .workerEventLoopGroup(group)
                .withChildOption(ChannelOption.SO_KEEPALIVE, null); // grpc-java sets it for TCP, and netty would warn on each connection.
    }

    /** Java has no umask: until this is called, the directory alone guards the socket. */
    static void guard(Path path) throws IOException {
        Files.setPosixFilePermissions(path, SOCKET);
    }

    private static boolean answers(Path path) {
        try (SocketChannel probe = SocketChannel.open(StandardProtocolFamily.UNIX)) {
            return probe.connect(UnixDomainSocketAddress.of(path));
        } catch (IOException nobody) {
            return false;
        }
    }

    /** Reads `ca.crt`, `tls.crt` and `tls.key` from a directory, and again when they change. */
    static NettyServerBuilder atAddress(InetSocketAddress address, Path tls, ScheduledExecutorService timers) throws IOException {
        try {
            AdvancedTlsX509KeyManager key = new AdvancedTlsX509KeyManager();
            key.updateIdentityCredentials(tls.resolve("tls.crt").toFile(), tls.resolve("tls.key").toFile(), REREAD_SECONDS, TimeUnit.SECONDS, timers);
            AdvancedTlsX509TrustManager clients = AdvancedTlsX509TrustManager.newBuilder()
                    .setVerification(AdvancedTlsX509TrustManager.Verification.CERTIFICATE_ONLY_VERIFICATION)
                    .build();
            clients.updateTrustCredentials(tls.resolve("ca.crt").toFile(), REREAD_SECONDS, TimeUnit.SECONDS, timers);
            SslContext context = GrpcSslContexts.configure(SslContextBuilder.forServer(key))
                    .trustManager(clients)
                    .clientAuth(ClientAuth.REQUIRE)
                    .protocols("TLSv1.3")
                    .build();
            return NettyServerBuilder.forAddress(address).sslContext(context);
        } catch (GeneralSecurityException error) {
            throw new IOException("the certificates in " + tls + " cannot be used", error);
        }
    }
}
