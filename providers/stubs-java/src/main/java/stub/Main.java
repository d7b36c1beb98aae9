package stub;

import java.io.IOException;
import stub.cloud.Cloud;
import stub.cloud.Door;

/** The program: serves until SIGTERM. */
final class Main {
    private Main() {}

    public static void main(String[] arguments) throws IOException, InterruptedException {
        Flags flags;
        try {
            flags = Flags.parse(arguments);
        } catch (IllegalArgumentException error) {
            System.err.println(error.getMessage() + "\n" + Flags.USAGE);
            System.exit(2);
            return;
        }
        Cloud cloud = new Cloud(flags.cloud());
        if (flags.door() != null) Door.open(cloud, flags.door());
        Provider provider = Provider.start(flags, cloud);
        System.err.println("serving at " + provider.where());
        // Java runs this on SIGTERM, and exits after it.
        Runtime.getRuntime().addShutdownHook(new Thread(provider::stop));
        provider.await();
    }
}
