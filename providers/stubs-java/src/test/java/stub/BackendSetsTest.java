package stub;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import ccm.cloudprovider.v1alpha1.BackendSet;
import ccm.cloudprovider.v1alpha1.NodeRef;
import org.junit.jupiter.api.Test;

class BackendSetsTest {
    private static final BackendSet WHOLE = BackendSet.newBuilder().setDigest("d").addNodes(NodeRef.newBuilder().setName("n")).build();
    private static final BackendSet NAMED = BackendSet.newBuilder().setDigest("d").setNodesOmitted(true).build();

    private final BackendSets sets = new BackendSets();

    private void assertUnknown(String cluster) {
        assertEquals("UNKNOWN_BACKEND_SET", Reasons.of(assertThrows(Refusal.class, () -> sets.whole(cluster, NAMED))));
    }

    @Test
    void aSetThatCameIsKnownByItsDigestInItsCluster() {
        assertUnknown("c");
        sets.whole("c", WHOLE);
        assertEquals(WHOLE, sets.whole("c", NAMED));
        assertUnknown("another cluster");
    }

    @Test
    void theLastOnesAreKeptAndMemoryIsBounded() {
        for (int at = 0; at < 1000; at++) sets.whole("c", WHOLE.toBuilder().setDigest("d" + at).build());
        for (int at = 996; at < 1000; at++) assertEquals(1, sets.whole("c", NAMED.toBuilder().setDigest("d" + at).build()).getNodesCount());
        assertThrows(Refusal.class, () -> sets.whole("c", NAMED.toBuilder().setDigest("d0").build()));
    }
}
