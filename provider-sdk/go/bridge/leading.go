package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

const (
	// notLedRetry is when to retry while nobody has led the provider yet.
	notLedRetry = time.Second
	notLed      = "the cloud provider will be initialized when a host first leads"
	// lastWords is how long abandoned calls get to be answered before the process exits.
	lastWords = 100 * time.Millisecond
)

// WithInitializeAtStart initializes the provider at once instead of when it is first led. What a provider starts in
// Initialize may write to the cloud, which only the leader's provider may do. Initializing at once suits shadow mode,
// providers without such work, and tests.
//
// While the bridge waits, reads return RETRY_LATER. The process exits when its term ends, like a controller manager that
// loses its Lease, since a provider cannot be initialized twice. Which parts the provider supports, the bridge asks before; it uses those that
// the provider returns afterwards.
func WithInitializeAtStart(atStart bool) Option {
	return func(b *bridge) { b.leading.atStart = atStart }
}

// leading controls when the provider is initialized, and what ends with the term.
type leading struct {
	atStart    bool
	begin, end sync.Once
	// initialized is closed once the provider is initialized, over when its term ends.
	initialized, over chan struct{}
	// exit ends the process.
	exit func(error)

	// cluster is the uid of the one that the provider was initialized for, or else of the first that called, once that is known.
	cluster atomic.Pointer[string]
}

// isFor reports whether the provider is initialized for a cluster, or for none yet.
func (l *leading) isFor(cluster string) bool {
	own := l.cluster.Load()
	return own == nil || *own == cluster
}

func newLeading() *leading {
	return &leading{initialized: make(chan struct{}), over: make(chan struct{}), exit: exit}
}

func exit(err error) {
	slog.Error("this process exits", "error", err)
	time.Sleep(lastWords)
	os.Exit(1)
}

// waits reports whether the provider has yet to be initialized.
func (l *leading) waits() bool { return !isClosed(l.initialized) }

// initializeOnce initializes the provider, or waits while another call does.
func (b *bridge) initializeOnce(cluster string) (err error) {
	b.leading.begin.Do(func() {
		if cluster != "" {
			b.leading.cluster.Store(&cluster)
		}
		if err = guarded(b.initialize); err != nil {
			err = fmt.Errorf("the cloud provider %q cannot be initialized: %w", b.cloud.ProviderName(), err)
			return
		}
		close(b.leading.initialized)
	})
	return err
}

// gate delays calls until the provider is initialized. A mutation initializes it: it comes from the leader, or from a host
// without leader election.
func (b *bridge) gate(ctx context.Context, mutation bool) error {
	if call, _ := sdk.CallFrom(ctx); mutation {
		b.initializeLed(call.Cluster.GetUid())
	}
	switch {
	case isClosed(b.leading.over):
		// The next leader's call would be cut off in the middle.
		return fault.RetryLater(notLedRetry, "this process ends with the term of its leader")
	case b.leading.waits():
		return fault.RetryLater(notLedRetry, notLed)
	}
	return nil
}

func (b *bridge) initializeLed(cluster string) {
	if err := b.initializeOnce(cluster); err != nil {
		b.leading.exit(err)
	}
}

// whileLed is the background work of one term. It does not wait for Initialize, which may hang; what Initialize started
// ends when the term ends. The term of another cluster ends nothing: the provider's loops are not its.
func (b *bridge) whileLed(ctx context.Context, cluster *pb.ClusterRef) {
	if ctx.Err() == nil {
		go b.initializeLed(cluster.GetUid())
	}
	<-ctx.Done()
	why := context.Cause(ctx)
	if fault.ReasonOf(why) == pb.ErrorReason_ERROR_REASON_SHUTTING_DOWN || !b.leading.isFor(cluster.GetUid()) {
		return
	}
	b.leading.end.Do(func() {
		close(b.leading.over)
		b.leading.exit(fmt.Errorf("leadership ended, and the cloud provider cannot be initialized twice: %w", why))
	})
}
