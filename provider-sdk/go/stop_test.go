package sdk_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"cloudprovider.ccm/sdk"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

func TestAStopIsToldAndMutationsFinish(t *testing.T) {
	begun, release := make(chan bool, 1), make(chan struct{})
	cloud := &cloud{
		ensure: func(ctx context.Context, _ *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error) {
			begun <- true
			<-release
			return &pb.EnsureLoadBalancerResponse{LoadBalancer: &pb.LoadBalancer{Id: "lb-1"}}, ctx.Err()
		},
		watch: func(context.Context, *pb.WatchInstancesRequest) (*sdk.Watch, error) { return &sdk.Watch{}, nil },
	}
	served := serve(t, provider(t, cloud))
	conn := served.dial(t)
	health, err := healthpb.NewHealthClient(conn).Watch(soon(t), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := health.Recv(); err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatal(got, err)
	}
	changes := watch(t, served)
	frame(t, changes)
	answered := make(chan error, 1)
	go func() {
		answer, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), ensureRequest())
		if err == nil && answer.GetLoadBalancer().GetId() != "lb-1" {
			err = errors.New("another answer")
		}
		answered <- err
	}()
	receive(t, begun, "the mutation")

	served.Stop()
	if got, err := health.Recv(); err != nil || got.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health says %v %v", got, err)
	}
	if _, err := health.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the health stream goes on: %v", err)
	}
	expect(t, end(changes), codes.Unavailable, pb.ErrorReason_ERROR_REASON_SHUTTING_DOWN)
	select {
	case err := <-served.ended:
		t.Fatalf("it ended before the mutation: %v", err)
	default:
	}
	close(release)
	if err := receive(t, answered, "the answer"); err != nil {
		t.Errorf("the mutation was not answered: %v", err)
	}
	served.wait(t)
	if _, err := os.Lstat(served.path); !os.IsNotExist(err) {
		t.Errorf("the socket stays: %v", err)
	}
}

// A stop also waits for a mutation whose caller has disconnected.
func TestAStopWaitsForOrphanedMutations(t *testing.T) {
	begun, release, finished := make(chan bool, 1), make(chan struct{}), make(chan error, 1)
	cloud := &cloud{ensure: func(ctx context.Context, _ *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error) {
		begun <- true
		<-release
		finished <- ctx.Err()
		return nil, nil
	}}
	served := serve(t, provider(t, cloud))
	ctx, cancel := context.WithCancel(soon(t))
	go func() {
		<-begun
		cancel()
	}()
	_, err := pb.NewLoadBalancersClient(served.dial(t)).EnsureLoadBalancer(ctx, ensureRequest())
	expect(t, err, codes.Canceled, 0)
	served.Stop()
	select {
	case <-served.ended:
		t.Fatal("it did not wait")
	case <-time.After(100 * time.Millisecond): // Long enough to end without any call; it must not come true, however long.
	}
	close(release)
	if err := receive(t, finished, "the end of the mutation"); err != nil {
		t.Errorf("the mutation was ended: %v", err)
	}
	served.wait(t)
}

// A stopping provider hears its leader, and nobody else: renewals let a mutation finish, and a host that steps down knows
// that the mutation has ended. [R:lead-ends]
func TestALeaderIsHeardDuringAStop(t *testing.T) {
	for _, row := range []struct {
		how    string
		then   *durationpb.Duration
		code   codes.Code
		reason pb.ErrorReason
	}{{"a renewal", long, codes.OK, 0}, {"stepping down", zero, codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_STALE_LEADER}} {
		t.Run(row.how, func(t *testing.T) {
			begun, release := make(chan bool, 1), make(chan struct{})
			cloud := &cloud{ensure: func(ctx context.Context, _ *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error) {
				begun <- true
				select {
				case <-release:
				case <-ctx.Done():
				}
				return &pb.EnsureLoadBalancerResponse{}, ctx.Err()
			}}
			served := serve(t, provider(t, cloud))
			conn := served.dial(t)
			lead(t, conn, 1, long)
			answered := ensureLed(t, conn)
			receive(t, begun, "the mutation")
			served.Stop()
			_, err := pb.NewInstancesClient(conn).BatchGetInstances(soon(t), queries("a"))
			expect(t, err, codes.Unavailable, pb.ErrorReason_ERROR_REASON_SHUTTING_DOWN)
			lead(t, served.dial(t), 1, long)
			lead(t, conn, 1, row.then)
			if row.code == codes.OK {
				close(release)
			}
			expect(t, receive(t, answered, "the answer"), row.code, row.reason)
			if row.code == codes.OK {
				lead(t, conn, 1, zero)
			}
			served.wait(t)
		})
	}
}

// A stop waits for work that continues after its answer, and tells it to give up when the grace period is over.
func TestAStopWaitsForWorkThatOutlivesItsAnswer(t *testing.T) {
	finished, told := make(chan struct{}), make(chan error, 2)
	cloud := &cloud{ensure: func(ctx context.Context, request *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error) {
		work, done := sdk.Outlive(ctx)
		go func() {
			defer done()
			select {
			case <-finished:
			case <-work.Done():
			}
			told <- work.Err()
		}()
		return &pb.EnsureLoadBalancerResponse{LoadBalancer: &pb.LoadBalancer{}, InProgress: &pb.InProgress{}}, nil
	}}
	for _, row := range []struct {
		grace time.Duration
		want  error
	}{{time.Minute, nil}, {0, context.Canceled}} {
		served := serve(t, provider(t, cloud), sdk.WithShutdownGrace(row.grace))
		if _, err := pb.NewLoadBalancersClient(served.dial(t)).EnsureLoadBalancer(soon(t), ensureRequest()); err != nil {
			t.Fatal(err)
		}
		served.Stop()
		if row.want == nil {
			select {
			case <-served.ended:
				t.Fatal("it did not wait")
			case <-time.After(100 * time.Millisecond): // As above.
			}
			finished <- struct{}{}
		}
		if err := receive(t, told, "the end of the work"); !errors.Is(err, row.want) {
			t.Errorf("%v instead of %v", err, row.want)
		}
		served.wait(t)
	}
}

func TestAfterTheGraceWhatRunsIsToldToGiveUp(t *testing.T) {
	begun, told := make(chan bool, 1), make(chan error, 1)
	cloud := &cloud{ensure: func(ctx context.Context, _ *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error) {
		begun <- true
		<-ctx.Done()
		told <- ctx.Err()
		return nil, ctx.Err()
	}}
	served := serve(t, provider(t, cloud), sdk.WithShutdownGrace(50*time.Millisecond), sdk.WithLastWords(patience))
	answered := make(chan error, 1)
	go func() {
		_, err := pb.NewLoadBalancersClient(served.dial(t)).EnsureLoadBalancer(soon(t), ensureRequest())
		answered <- err
	}()
	receive(t, begun, "the mutation")
	served.Stop()
	if err := receive(t, told, "the word"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	expect(t, receive(t, answered, "the answer"), codes.Unavailable, pb.ErrorReason_ERROR_REASON_SHUTTING_DOWN)
	served.wait(t)
}

// A method that hangs for ever does not keep the process alive.
func TestAHungMutationIsCut(t *testing.T) {
	begun, release := make(chan bool, 1), make(chan struct{})
	defer close(release)
	cloud := &cloud{ensure: func(context.Context, *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error) {
		begun <- true
		<-release
		return nil, nil
	}}
	served := serve(t, provider(t, cloud), sdk.WithShutdownGrace(20*time.Millisecond))
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	go pb.NewLoadBalancersClient(served.dial(t)).EnsureLoadBalancer(ctx, ensureRequest())
	receive(t, begun, "the mutation")
	served.Stop()
	served.wait(t)
}

func TestTheContextAndASignalStop(t *testing.T) {
	for name, stop := range map[string]func(context.CancelFunc){
		"context": func(cancel context.CancelFunc) { cancel() },
		"signal": func(context.CancelFunc) {
			if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := socketPath(t)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ended := make(chan error, 1)
			made := provider(t, &cloud{})
			go func() { ended <- sdk.Serve(ctx, made, sdk.WithEndpoint("unix://"+path)) }()
			// Its first answer shows that it serves, and so handles signals.
			client := pb.NewInstancesClient((&served{path: path}).dial(t))
			for ctx := soon(t); ; {
				if _, err := client.BatchGetInstances(ctx, queries("a")); err == nil {
					break
				} else if ctx.Err() != nil {
					t.Fatal(err)
				}
			}
			stop(cancel)
			if err := receive(t, ended, "the end"); err != nil {
				t.Error(err)
			}
			if conn, err := net.Dial("unix", path); err == nil {
				conn.Close()
				t.Error("somebody still answers")
			}
		})
	}
}

func TestAStopBeforeServingEndsItAtOnce(t *testing.T) {
	made := provider(t, &cloud{})
	server, err := sdk.Listen(made, sdk.WithEndpoint("unix://"+socketPath(t)), sdk.WithoutSignals())
	if err != nil {
		t.Fatal(err)
	}
	made.Stop()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(context.Background()) }()
	if err := receive(t, ended, "the end"); err != nil {
		t.Error(err)
	}
}
