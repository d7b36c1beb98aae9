package bridge

import (
	"crypto/rand"
	"strconv"
	"strings"
	"sync"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

const (
	// walkLasts is how long a list is kept after its last page was asked for.
	walkLasts = 5 * time.Minute
	// maxWalks is how many lists are kept at once; the caller of a dropped one starts again.
	maxWalks = 64
)

// pages splits a list into pages. All pages of a list come from one query of the provider, which is kept for some minutes.
type pages[T any] struct {
	now   func() time.Time
	mu    sync.Mutex
	walks map[string]*walk[T]
}

type walk[T any] struct {
	// cluster is whose caller walks: its token is no other's.
	cluster string
	items   []T
	until   time.Time
}

// page returns the items of one page, and the token of the next one; it calls look for the first page only.
func (p *pages[T]) page(cluster *pb.ClusterRef, token string, size int32, look func() ([]T, error)) ([]T, string, error) {
	id, items, start := rand.Text(), []T(nil), 0
	if token == "" {
		var err error
		if items, err = look(); err != nil {
			return nil, "", err
		}
	} else {
		var err error
		if id, items, start, err = p.find(cluster.GetUid(), token); err != nil {
			return nil, "", err
		}
	}
	end := start + int(max(size, 1))
	if end >= len(items) {
		return items[start:], "", nil
	}
	p.keep(id, cluster.GetUid(), items)
	return items[start:end], id + "." + strconv.Itoa(end), nil
}

func (p *pages[T]) find(cluster, token string) (id string, items []T, start int, err error) {
	id, place, _ := strings.Cut(token, ".")
	start, bad := strconv.Atoi(place)
	p.mu.Lock()
	defer p.mu.Unlock()
	found, known := p.walks[id]
	if bad != nil || !known || found.cluster != cluster || start < 1 || start >= len(found.items) {
		return "", nil, 0, fault.InvalidToken()
	}
	return id, found.items, start, nil
}

// keep stores a list and drops those that nobody goes on with.
func (p *pages[T]) keep(id, cluster string, items []T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.walks == nil {
		p.walks = map[string]*walk[T]{}
	}
	now := p.now()
	for other, walk := range p.walks {
		if now.After(walk.until) {
			delete(p.walks, other)
		}
	}
	p.walks[id] = &walk[T]{cluster, items, now.Add(walkLasts)}
	if len(p.walks) > maxWalks {
		oldest := id
		for other, walk := range p.walks {
			if walk.until.Before(p.walks[oldest].until) {
				oldest = other
			}
		}
		delete(p.walks, oldest)
	}
}
