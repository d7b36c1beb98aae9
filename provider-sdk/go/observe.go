package sdk

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	requestIDKey = "x-request-id"
	maxRequestID = 64
	traceParent  = "traceparent"
)

// observer gives every RPC its context, its log lines and its metrics.
type observer struct {
	log     *slog.Logger
	metrics *metrics
}

// running is a running RPC.
type running struct {
	*observer
	call  *Call
	began time.Time
	once  sync.Once
}

func (o *observer) begin(ctx context.Context, full string) (context.Context, *running) {
	headers, _ := metadata.FromIncomingContext(ctx)
	// Outgoing calls of a provider that uses OpenTelemetry continue the caller's trace.
	ctx = propagation.TraceContext{}.Extract(ctx, carrier(headers))
	of := methodOf(full)
	call := &Call{
		Service: of.service, Method: of.name, RequestID: requestID(headers), TraceParent: first(headers, traceParent),
		CallerGone: ctx.Done(), method: of,
	}
	call.Deadline, _ = ctx.Deadline()
	if from, known := peer.FromContext(ctx); known {
		call.Peer = from.AuthInfo
	}
	call.log = o.log.With("service", of.service, "method", of.name, "request_id", call.RequestID)
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		call.log = call.log.With("trace_id", span.TraceID().String())
	}
	o.metrics.started(of)
	return context.WithValue(ctx, callKey{}, call), &running{observer: o, call: call, began: time.Now()}
}

// end records how the RPC ended; only the first call counts.
func (r *running) end(err error) {
	r.once.Do(func() {
		code, reason, took := status.Code(err), "", time.Since(r.began)
		if found, ours := fault.FromStatus(err); ours {
			reason = fault.WireName(found.Reason())
		}
		r.metrics.ended(r.call.method, codeName(code), reason, took)
		log := r.call.log.With("code", codeName(code), "reason", reason, "took", took)
		switch code {
		case codes.OK:
			log.Debug("answered")
		case codes.Internal, codes.Unknown, codes.DataLoss:
			log.Warn("failed")
		default:
			log.Info("refused")
		}
	})
}

func (o *observer) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (answer any, err error) {
	ctx, running := o.begin(ctx, info.FullMethod)
	defer func() { running.end(err) }()
	defer caught(ctx, &err)
	return handler(ctx, request)
}

func (o *observer) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	ctx, running := o.begin(stream.Context(), info.FullMethod)
	defer func() { running.end(err) }()
	defer caught(ctx, &err)
	return handler(server, &observedStream{stream, ctx, running})
}

// observedStream records its outcome with its first response, not at its end.
type observedStream struct {
	grpc.ServerStream
	ctx     context.Context
	running *running
}

func (s *observedStream) Context() context.Context { return s.ctx }

func (s *observedStream) SendMsg(message any) error {
	err := s.ServerStream.SendMsg(message)
	if err == nil {
		s.running.end(nil)
	}
	return err
}

// caught turns a panic into an error.
func caught(ctx context.Context, err *error) {
	if panicked := recover(); panicked != nil {
		*err = fail(ctx, errPanic(panicked))
	}
}

// errPanic returns the panic's message, for the log only: it may contain anything.
func errPanic(panicked any) error {
	return fault.Internal(fmt.Errorf("the method panicked: %v\n%s", panicked, debug.Stack()))
}

// fail turns an error into one that may leave the process: with the contract's ErrorInfo, its cause only in the log.
func fail(ctx context.Context, err error) error {
	var found *fault.Error
	switch {
	case errors.As(err, &found):
	case errors.Is(err, context.DeadlineExceeded) && errors.Is(ctx.Err(), context.DeadlineExceeded):
		// The longest that a mutation may take is over; who joined it late still waits.
		return status.FromContextError(context.DeadlineExceeded).Err()
	case errors.Is(err, context.DeadlineExceeded):
		// The provider's limit for a call to its cloud; of a mutation of one object see ofItsObject.
		found = fault.CloudAPIUnavailable(fault.WithCause(err))
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		// Only the end of the grace period cancels work whose caller still waits. What the provider cancels itself is its fault.
		found = fault.ShuttingDown()
	default:
		found = fault.Internal(err)
	}
	if cause := errors.Unwrap(found); cause != nil {
		Logger(ctx).Warn(found.Message(), "reason", fault.WireName(found.Reason()), "cause", cause)
	}
	if found.Code() == codes.Internal {
		if call, known := CallFrom(ctx); known {
			found = found.With(fault.WithMetadata("request_id", call.RequestID))
		}
	}
	return found.GRPCStatus().Err()
}

// ofItsObject makes the end of the provider's own limit a failure of the object, if a mutation is about one: whether the cloud answers is
// what many objects show, and reads. Else three objects that hang in a cloud that works would hold up what is deleted elsewhere.
func ofItsObject(handler grpc.UnaryHandler) grpc.UnaryHandler {
	return func(ctx context.Context, request any) (any, error) {
		began, one := time.Now(), isOfOne(request)
		answer, err := handler(ctx, request)
		var told *fault.Error
		if !one || !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &told) || ctx.Err() != nil {
			return answer, err
		}
		text := fmt.Sprintf("the provider gave up after %v: its call to the cloud did not return in time", time.Since(began).Round(time.Second))
		return nil, fault.New(pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR, text, fault.WithCause(err))
	}
}

// isOfOne reports whether a request is no batch, or one of a single item.
func isOfOne(request any) bool {
	asked := request.(proto.Message).ProtoReflect()
	items := asked.Descriptor().Fields().ByName("items")
	return items == nil || asked.Get(items).List().Len() == 1
}

// logItem logs the error of one item of a batch as those of calls are: a cause, and what the provider itself did wrong, is a warning.
func logItem(ctx context.Context, object string, failed *pb.ItemError) {
	level, about := slog.LevelInfo, []any{"item", object, "reason", fault.WireName(failed.GetReason())}
	cause := fault.CauseOf(failed)
	if cause != nil {
		about = append(about, "cause", cause)
	}
	if cause != nil || fault.CodeOf(failed.GetReason()) == codes.Internal {
		level = slog.LevelWarn
	}
	Logger(ctx).Log(ctx, level, failed.GetMessage(), about...)
}

func requestID(headers metadata.MD) string {
	if id := first(headers, requestIDKey); id != "" && len(id) <= maxRequestID {
		return id
	}
	return rand.Text()
}

func first(headers metadata.MD, key string) string {
	if values := headers.Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// carrier reads a trace's context from the headers of a call.
type carrier metadata.MD

func (c carrier) Get(key string) string { return first(metadata.MD(c), key) }

func (c carrier) Set(string, string) {}

func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for key := range c {
		keys = append(keys, key)
	}
	return keys
}
