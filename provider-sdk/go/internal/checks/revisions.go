package checks

import (
	"slices"
	"strconv"
	"sync"

	"cloudprovider.ccm/sdk/fault"
)

// remembered is how many Services are kept in mind; beyond that, those whose last change is longest ago are forgotten, as
// after a restart.
const remembered = 1 << 16

// Revisions refuses what was overtaken: the wanted state of a Service that is older than one accepted before.
type Revisions struct {
	mu      sync.Mutex
	highest map[Subject]accepted
	clock   uint64
}

type accepted struct{ revision, touched uint64 }

// Accept accepts a revision, or refuses it below the highest accepted one. An equal one is the same call again; 0 is never
// refused nor kept.
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
