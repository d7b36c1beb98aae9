package sdk

import (
	"context"
	"log/slog"
	"time"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc/credentials"
)

// Call is what a method knows about the call that it serves, apart from the request.
type Call struct {
	// Service is the fully qualified name, for example "ccm.cloudprovider.v1alpha1.Instances".
	Service string
	// Method is the name of the RPC, for example "BatchGetInstances".
	Method string
	// RequestID is the caller's x-request-id, or a random one; this call's log lines carry it too.
	RequestID string
	// TraceParent is the caller's W3C traceparent, to pass on to a cloud that accepts it; empty if there is none.
	TraceParent string
	// Cluster is the cluster on whose behalf the host calls; nil if the request names none.
	Cluster *pb.ClusterRef
	// Deadline is when the caller stops waiting; zero for streams, and for a caller that set no deadline. The context of a
	// mutation outlives it.
	Deadline time.Time
	// Peer is the caller: PeerUnix or credentials.TLSInfo.
	Peer credentials.AuthInfo
	// CallerGone is closed when nobody waits for the response any more. For information only: a mutation continues.
	CallerGone <-chan struct{}

	method method
	log    *slog.Logger
}

type callKey struct{}

// CallFrom returns the call that a method's context belongs to; false outside a call, as in a test that calls a method
// itself.
func CallFrom(ctx context.Context) (Call, bool) {
	call, there := ctx.Value(callKey{}).(*Call)
	if !there {
		return Call{}, false
	}
	return *call, true
}

// Remaining returns the time left until the caller's deadline, zero after it, and whether there is a deadline: the
// limit for cloud calls.
func (c Call) Remaining() (time.Duration, bool) {
	if c.Deadline.IsZero() {
		return 0, false
	}
	return max(0, time.Until(c.Deadline)), true
}

// Logger returns a logger whose lines carry the attributes of the context's call, with secrets redacted.
func Logger(ctx context.Context) *slog.Logger {
	call, there := ctx.Value(callKey{}).(*Call)
	if !there {
		return slog.Default()
	}
	return call.log
}

func (c *Call) clusterIs(cluster *pb.ClusterRef) {
	c.Cluster = cluster
	if cluster.GetUid() != "" {
		c.log = c.log.With("cluster_uid", cluster.GetUid())
	}
}
