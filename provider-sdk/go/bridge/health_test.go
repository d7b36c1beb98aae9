package bridge

import (
	"errors"
	"testing"

	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Nodes that fail for ever, such as those with an ID that the provider cannot parse, are asked about alone at each pass while they are
// not ready: that must not freeze everybody's deletions. Once the others fail, too, it is the cloud.
func TestWhatFailsForReasonsOfItsOwnSaysNothingOfTheCloud(t *testing.T) {
	r := reachable{}
	saw := func(failing, answering string) {
		results, nodes := []*pb.InstanceResult{}, map[string]*v1.Node{}
		for _, name := range failing + answering {
			key := string(name)
			nodes[key] = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: key}}
			results = append(results, &pb.InstanceResult{Key: key, State: pb.InstanceState_INSTANCE_STATE_RUNNING})
		}
		for at := range len(failing) {
			results[at] = sdk.Unknown(results[at].Key, fault.Internal(errors.New("cannot parse the ID")))
		}
		r.saw(results, nodes)
	}
	for at, row := range []struct {
		failing, answering string
		unreachable        bool
	}{
		{"abc", "", true}, // Nothing else is known yet.
		{"abc", "xyz", false},
		{"abc", "", true}, // The cloud may have failed in the middle of the last batch.
		{"abc", "xyz", false},
		{"abc", "", false},
		{"abc", "", false},
		{"abcxy", "", false},
		{"z", "", true},
		{"", "a", false},
		{"abc", "", false},
		{"axy", "", true}, // a has answered since.
		{"abc", "xyz", false},
		{"abc", "xyz", false},
		{"abc", "", false},
	} {
		saw(row.failing, row.answering)
		if failing, _, _ := r.failing(); (failing >= proof) != row.unreachable {
			t.Errorf("row %d: %d fail", at, failing)
		}
	}
	r.last = r.last.Add(-othersWithin)
	if failing, _, _ := r.failing(); failing < proof {
		t.Errorf("%d fail, though nobody has been answered for long", failing)
	}
	r = reachable{}
	saw("abcde", "")
	r.saw([]*pb.InstanceResult{sdk.Unknown("f", fault.UnsupportedFeature("affinity", "its own words"))}, map[string]*v1.Node{"f": {}})
	if failing, _, _ := r.failing(); failing < proof {
		t.Errorf("%d fail, after the words of a node", failing)
	}
}
