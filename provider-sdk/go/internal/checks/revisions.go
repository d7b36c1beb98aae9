package checks

import (
	"slices"
	"strconv"
	"sync"

	"cloudprovider.ccm/sdk/fault"
)

// remembered is the number of Services remembered. Beyond it, the least recently changed ones are forgotten, as after a
// restart.
const remembered = 1 << 16

// Revisions refuses requests whose revision of a Service is older than the latest accepted one.
type Revisions struct {
	mu      sync.Mutex
	highest map[Subject]accepted
	clock   uint64
}

type accepted struct{ revision, touched uint64 }

// Accept accepts a revision, or refuses it if it is lower than the highest accepted one. An equal revision repeats the
// same call; 0 is neither refused nor recorded.
func (r *Revisions) Accept(subject Subject, revision uint64) error {
	if revision == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if highest := r.highest[subject].revision; revision < highest {
		return fault.StaleRevision(subject.Name,
			fault.WithMetadata("revision", strconv.FormatUint(revision, 10)),
			fault.WithMetadata("accepted", strconv.FormatUint(highest, 10)))
	}
	if r.highest == nil {
		r.highest = map[Subject]accepted{}
	}
	r.clock++
	r.highest[subject] = accepted{revision, r.clock}
	r.forgetTheOldest()
	return nil
}

func (r *Revisions) forgetTheOldest() {
	if len(r.highest) <= remembered {
		return
	}
	touched := make([]uint64, 0, len(r.highest))
	for _, entry := range r.highest {
		touched = append(touched, entry.touched)
	}
	slices.Sort(touched)
	middle := touched[remembered/2]
	for key, entry := range r.highest {
		if entry.touched < middle {
			delete(r.highest, key)
		}
	}
}
