package sdk

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// lifecycle is the life of a served provider: whether it accepts work, whether it is stopping, and which mutations
// still run.
type lifecycle struct {
	// stop is cancelled when the provider begins to stop: it accepts no new work, and streams end.
	stop context.Context
	// giveUp is cancelled when the grace period is over: running work is abandoned.
	giveUp context.Context

	// idleNow closes idle, once: work that a mutation left behind may begin after the last mutation has ended.
	stopNow, giveUpNow, idleNow func()

	mu        sync.Mutex
	serving   map[string]bool
	changed   chan struct{}
	stopping  bool
	mutations int
	idle      chan struct{}
}

func newLifecycle(services []string) *lifecycle {
	life := &lifecycle{serving: map[string]bool{}, changed: make(chan struct{}), idle: make(chan struct{})}
	life.stop, life.stopNow = context.WithCancel(context.Background())
	life.giveUp, life.giveUpNow = context.WithCancel(context.Background())
	life.idleNow = sync.OnceFunc(func() { close(life.idle) })
	for _, service := range services {
		life.serving[service] = true
	}
	return life
}

// health is whether a service accepts work at one moment.
type health struct {
	known, serving bool
	// last reports that the process is stopping, so this is final.
	last bool
	// changed is closed when the health changes.
	changed <-chan struct{}
}

// health returns the health of a service, "" for the provider as a whole.
func (l *lifecycle) health(service string) health {
	l.mu.Lock()
	defer l.mu.Unlock()
	serving, known := l.serving[service]
	return health{known, serving && !l.stopping, l.stopping, l.changed}
}

func (l *lifecycle) setAll(serving bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for service := range l.serving {
		l.serving[service] = serving
	}
	l.tell()
}

func (l *lifecycle) set(service string, serving bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.serving[service]
	if known {
		l.serving[service] = serving
		l.tell()
	}
	return known
}

// tell wakes those who watch the health; the caller holds the lock.
func (l *lifecycle) tell() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// beginStop begins to stop: health first, so that callers see it before their streams end.
func (l *lifecycle) beginStop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopping {
		return
	}
	l.stopping = true
	l.tell()
	if l.mutations == 0 {
		l.idleNow()
	}
	l.stopNow()
}

// beginMutation counts a mutation that starts; false once the provider is stopping.
func (l *lifecycle) beginMutation() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopping {
		return false
	}
	l.mutations++
	return true
}

// joinMutation counts work that a mutation leaves behind; always allowed, since the mutation was.
func (l *lifecycle) joinMutation() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mutations++
}

func (l *lifecycle) endMutation() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mutations--
	if l.stopping && l.mutations == 0 {
		l.idleNow()
	}
}

func (l *lifecycle) running() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mutations
}

// services returns the names of everything that has a health, including "" for the whole.
func (l *lifecycle) services() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.serving))
}
