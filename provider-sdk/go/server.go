package sdk

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	discovery "cloudprovider.ccm/sdk/gen/ccm/discovery/v1"
	"cloudprovider.ccm/sdk/internal/checks"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

const (
	// handshakeWithin is how long a silent client may hold a connection.
	handshakeWithin = 10 * time.Second
	// pingsAtLeast is how often a client may ping; a host does every 15 s.
	pingsAtLeast = 5 * time.Second
	// leastTime is the time that starting and answering a call takes.
	leastTime = 2 * time.Millisecond
	// stepDownWithin is how long a leader may take to step down once no mutation runs any more.
	stepDownWithin = 2 * time.Second
)

// Server is a provider with an open endpoint, created by Listen.
type Server struct {
	provider *Provider
	options  *serving
	door     door
	metrics  net.Listener
}

// Serve serves a provider until its context ends, a SIGTERM or SIGINT, or Provider.Stop; then it stops gracefully.
func Serve(ctx context.Context, provider *Provider, options ...ServeOption) error {
	server, err := Listen(provider, options...)
	if err != nil {
		return err
	}
	return server.Serve(ctx)
}

// Listen opens the endpoint. Callers can connect from now on; they get responses once the server serves. The error
// names the problem and the remedy.
func Listen(provider *Provider, options ...ServeOption) (*Server, error) {
	serving := newServing()
	for _, option := range options {
		option(serving)
	}
	if err := provider.metrics.register(); err != nil {
		return nil, err
	}
	metrics, err := serving.openMetrics()
	if err != nil {
		return nil, err
	}
	door, err := serving.open(provider)
	if err != nil {
		if metrics != nil {
			metrics.Close()
		}
		return nil, err
	}
	return &Server{provider, serving, door, metrics}, nil
}

// Endpoint returns the address that the server listens on, with the real port if port 0 was requested.
func (s *Server) Endpoint() Endpoint { return s.door.endpoint }

// MetricsAddress returns the address of the metrics, nil if they are not served.
func (s *Server) MetricsAddress() net.Addr {
	if s.metrics == nil {
		return nil
	}
	return s.metrics.Addr()
}

// Serve serves until it is stopped. Then health turns to NOT_SERVING, streams end, running mutations get the grace period
// to finish, and the socket file is removed.
func (s *Server) Serve(ctx context.Context) error {
	life, log := s.provider.life, s.provider.log
	ctx, release := s.untilSignal(ctx)
	defer release()
	defer context.AfterFunc(ctx, func() {
		release() // A second signal ends the process at once.
		life.beginStop()
	})()
	limits := s.provider.advertised.limits
	core := &core{
		provider: s.provider, sets: checks.BackendSets{MessageBytes: s.provider.advertised.messageBytes},
		reading: make(places, limits.GetMaxConcurrentReads()), mutating: make(places, limits.GetMaxConcurrentMutations()),
	}
	main, refusing := s.servers(core)
	var serving sync.WaitGroup
	failed := make(chan error, 2)
	serve := func(server *grpc.Server, listener net.Listener) {
		serving.Go(func() {
			err := server.Serve(listener)
			if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, grpc.ErrServerStopped) {
				failed <- err
			}
			// If it ended by itself, the rest must not wait for a stop that nobody requests.
			life.beginStop()
		})
	}
	serve(main, s.door.passed)
	if s.door.rest != nil {
		serve(refusing, s.door.rest)
	}
	stopMetrics := s.serveMetrics()
	log.Info("serving", "provider", s.provider.name, "endpoint", s.door.endpoint.String(), "epoch", s.provider.epoch)
	<-life.stop.Done()
	s.drain(main, core)
	refusing.Stop()
	err := s.door.close()
	serving.Wait()
	stopMetrics()
	log.Info("stopped", "provider", s.provider.name)
	select {
	case failure := <-failed:
		return failure
	default:
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		return err
	}
}

func (s *Server) untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	if !s.options.signals {
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// drain waits for running mutations, their leader and all calls, for a limited time. Until then the leader is heard, on
// new connections too.
func (s *Server) drain(server *grpc.Server, core *core) {
	life, log := s.provider.life, s.provider.log
	answered := make(chan struct{})
	go func() {
		<-life.idle
		core.farewell()
		server.GracefulStop()
		close(answered)
	}()
	if inTime(answered, s.options.grace) {
		return
	}
	log.Warn("the grace period is over; running mutations are abandoned", "mutations", life.running())
	life.giveUpNow()
	if !inTime(answered, s.options.lastWords) {
		log.Warn("closing connections", "mutations", life.running())
	}
	server.Stop()
}

func inTime(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// servers returns the server for trusted peers, and one that only tells other peers why they are refused.
func (s *Server) servers(core *core) (main, refusing *grpc.Server) {
	provider := s.provider
	observer := &observer{provider.log, provider.metrics}
	common := []grpc.ServerOption{
		grpc.Creds(s.door.credentials),
		grpc.ConnectionTimeout(handshakeWithin),
		grpc.MaxRecvMsgSize(provider.advertised.messageBytes),
		grpc.MaxSendMsgSize(provider.advertised.messageBytes),
		// A host pings over TCP also while nothing happens; by default that is taken for an attack, and ends the connection.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingsAtLeast, PermitWithoutStream: true}),
		grpc.ChainStreamInterceptor(observer.stream),
	}
	refusing = grpc.NewServer(slices.Concat(common, []grpc.ServerOption{grpc.UnknownServiceHandler(refuse)})...)
	measured := grpc.ChainUnaryInterceptor(observer.unary, core.unary)
	main = grpc.NewServer(slices.Concat(common, []grpc.ServerOption{measured, grpc.InTapHandle(inTimeAtAll)})...)
	s.register(main, core)
	return main, refusing
}

// inTimeAtAll ends a call whose deadline is about to expire before it does any work: at the deadline itself the library
// resets the stream, and no response arrives.
func inTimeAtAll(ctx context.Context, _ *tap.Info) (context.Context, error) {
	if deadline, is := ctx.Deadline(); is && time.Until(deadline) < leastTime {
		return ctx, status.FromContextError(context.DeadlineExceeded).Err()
	}
	return ctx, nil
}

func refuse(_ any, stream grpc.ServerStream) error {
	call, _ := CallFrom(stream.Context())
	return fail(stream.Context(), notTrusted(call.Peer))
}

// register adds exactly the services that the provider serves.
func (s *Server) register(server *grpc.Server, core *core) {
	provider := s.provider
	names := append(provider.ServiceNames(), healthService)
	healthpb.RegisterHealthServer(server, &healthServer{life: provider.life})
	if s.options.reflection {
		names = append(names, reflectionService)
		reflection.RegisterV1(server)
	}
	discovery.RegisterDiscoveryServer(server, newDiscoveryServer(provider, names))
	pb.RegisterCloudProviderServer(server, &baseServer{core: core})
	if provider.instances != nil {
		pb.RegisterInstancesServer(server, &instancesServer{core: core, Instances: provider.instances})
	}
	if provider.loadBalancers != nil {
		pb.RegisterLoadBalancersServer(server,
			&loadBalancersServer{LoadBalancers: provider.loadBalancers})
	}
	if provider.routes != nil {
		pb.RegisterRoutesServer(server, &routesServer{Routes: provider.routes})
	}
	if provider.volumes != nil {
		pb.RegisterVolumesServer(server, &volumesServer{Volumes: provider.volumes})
	}
	if provider.clusters != nil {
		pb.RegisterClustersServer(server, &clustersServer{Clusters: provider.clusters})
	}
}

// serveMetrics serves the metrics, if enabled, until the returned function is called.
func (s *Server) serveMetrics() (stop func()) {
	if s.metrics == nil {
		return func() {}
	}
	server := &http.Server{Handler: s.provider.metrics.handler(), ReadHeaderTimeout: handshakeWithin}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(s.metrics); !errors.Is(err, http.ErrServerClosed) {
			s.provider.log.Warn("metrics are no longer served", "error", err)
		}
	}()
	return func() {
		server.Close()
		<-ended
	}
}
