package checks

import (
	"strconv"
	"sync"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// Fences distinguishes a former leader from the current one by what this process remembers. A scope is a Lease; a new
// scope appears only if somebody deleted the Lease.
type Fences struct {
	mu      sync.Mutex
	highest map[string]uint64
}

// Check refuses an epoch below the highest of the same scope. Epoch 0 (leader election is off) is neither refused nor
// recorded.
func (f *Fences) Check(fencing *pb.Fencing) error {
	epoch, scope := fencing.GetEpoch(), fencing.GetScope()
	if epoch == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if highest := f.highest[scope]; epoch < highest {
		return fault.StaleLeader(scope,
			fault.WithMetadata("epoch", strconv.FormatUint(epoch, 10)),
			fault.WithMetadata("highest", strconv.FormatUint(highest, 10)))
	}
	if f.highest == nil {
		f.highest = map[string]uint64{}
	}
	f.highest[scope] = epoch
	return nil
}
