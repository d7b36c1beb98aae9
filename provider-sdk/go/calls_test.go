package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

func TestBatchIsAnsweredByKey(t *testing.T) {
	client := pb.NewInstancesClient(serve(t, provider(t, &cloud{})).dial(t))
	answer, err := client.BatchGetInstances(soon(t), queries("a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.GetResults()) != 2 || answer.GetResults()[1].GetKey() != "b" {
		t.Errorf("got %v", answer)
	}
}

// [R:absence-needs-id]
func TestAbsenceByNameIsNoEvidence(t *testing.T) {
	byName := &pb.InstanceQuery{Key: "a", Node: &pb.NodeRef{Name: "a"}}
	byID := &pb.InstanceQuery{Key: "a", Node: &pb.NodeRef{Name: "a", ProviderId: "test://a"}}
	if sdk.Absent(byName).GetAuthoritative() || !sdk.Absent(byID).GetAuthoritative() || !sdk.AbsentByKey(byName).GetAuthoritative() {
		t.Error(sdk.Absent(byName), sdk.Absent(byID), sdk.AbsentByKey(byName))
	}
}

// [R:error-info] [R:error-no-secret]
func TestErrorsOnTheirWayOut(t *testing.T) {
	const canary = "canary-hunter2"
	answers := map[string]func() (*pb.BatchGetInstancesResponse, error){
		"typed": func() (*pb.BatchGetInstancesResponse, error) { return nil, fault.RateLimited(7 * time.Second) },
		"wrapped": func() (*pb.BatchGetInstancesResponse, error) {
			return nil, fmt.Errorf("reading: %w", fault.CloudPermissionDenied("servers:list"))
		},
		"foreign": func() (*pb.BatchGetInstancesResponse, error) { return nil, errors.New("password=" + canary) },
		"bounded": func() (*pb.BatchGetInstancesResponse, error) {
			return nil, fmt.Errorf("GET /servers: %w", context.DeadlineExceeded)
		},
		"cancelled": func() (*pb.BatchGetInstancesResponse, error) {
			return nil, fmt.Errorf("a flight that its first passenger left: %w", context.Canceled)
		},
		"panic": func() (*pb.BatchGetInstancesResponse, error) { panic("token: " + canary) },
		"nil":   func() (*pb.BatchGetInstancesResponse, error) { return nil, nil },
	}
	log := &buffer{}
	cloud := &cloud{batchGet: func(_ context.Context, request *pb.BatchGetInstancesRequest) (*pb.BatchGetInstancesResponse, error) {
		return answers[request.GetQueries()[0].GetKey()]()
	}}
	made := provider(t, cloud, sdk.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	client := pb.NewInstancesClient(serve(t, made).dial(t))
	for name, want := range map[string]struct {
		code   codes.Code
		reason pb.ErrorReason
	}{
		"typed":     {codes.ResourceExhausted, pb.ErrorReason_ERROR_REASON_RATE_LIMITED},
		"wrapped":   {codes.PermissionDenied, pb.ErrorReason_ERROR_REASON_CLOUD_PERMISSION_DENIED},
		"foreign":   {codes.Internal, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR},
		"bounded":   {codes.Unavailable, pb.ErrorReason_ERROR_REASON_CLOUD_API_UNAVAILABLE},
		"cancelled": {codes.Internal, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR},
		"panic":     {codes.Internal, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR},
		"nil":       {codes.Internal, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR},
	} {
		ctx := metadata.AppendToOutgoingContext(soon(t), "x-request-id", "id-"+name)
		_, err := client.BatchGetInstances(ctx, queries(name))
		expect(t, err, want.code, want.reason)
		if found, _ := fault.FromStatus(err); want.code == codes.Internal && found.Metadata("request_id") != "id-"+name {
			t.Errorf("%s: an internal error names no log line: %v", name, found)
		}
		if strings.Contains(fmt.Sprint(err), canary) {
			t.Errorf("%s: the canary travelled: %v", name, err)
		}
	}
	text := log.String()
	for _, want := range []string{"id-panic", "the method panicked", "password=[redacted]", "cluster-1", "GET /servers"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	if strings.Contains(text, canary) {
		t.Errorf("the canary is in the log: %s", text)
	}
}

// The host gets one sentence for an item; what caused it is for whoever runs the provider.
func TestTheCauseOfAnItemsErrorIsLogged(t *testing.T) {
	const canary = "canary-hunter2"
	log := &buffer{}
	cloud := &cloud{batchGet: func(_ context.Context, request *pb.BatchGetInstancesRequest) (*pb.BatchGetInstancesResponse, error) {
		answer := &pb.BatchGetInstancesResponse{}
		for _, query := range request.GetQueries() {
			switch query.GetKey() {
			case "well":
				answer.Results = append(answer.Results, sdk.Absent(query))
			case "early":
				answer.Results = append(answer.Results, sdk.Unknown("early", fault.MetadataNotReady(time.Second)))
			default:
				answer.Results = append(answer.Results, sdk.Unknown(query.GetKey(), errors.New("GET /servers: password="+canary)))
			}
		}
		return answer, nil
	}}
	made := provider(t, cloud, sdk.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	client := pb.NewInstancesClient(serve(t, made).dial(t))
	answer, err := client.BatchGetInstances(soon(t), queries("well", "early", "bad"))
	if err != nil || strings.Contains(fmt.Sprint(answer), "/servers") {
		t.Error("the cause travelled:", answer, err)
	}
	for want, lines := range map[string]int{
		"item=node-well": 0, "level=INFO.*method=BatchGetInstances.*item=node-early.*reason=METADATA_NOT_READY": 1,
		"level=WARN.*method=BatchGetInstances.*item=node-bad.*reason=INTERNAL_ERROR.*GET /servers: password=.redacted": 1, canary: 0,
	} {
		if got := len(regexp.MustCompile(want).FindAllString(log.String(), -1)); got != lines {
			t.Errorf("%d lines with %q, want %d: %s", got, want, lines, log)
		}
	}
	// A cloud that is away fails all items in the same way.
	var all []string
	for at := range 100 {
		all = append(all, fmt.Sprint("bad-", at))
	}
	if _, err := client.BatchGetInstances(soon(t), queries(all...)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(log.String(), "item=node-bad-"); got != 10 || !strings.Contains(log.String(), "items=90") {
		t.Errorf("%d items are told: %s", got, log)
	}
}

func TestWhatAMethodLearnsOfItsCall(t *testing.T) {
	calls := make(chan sdk.Call, 1)
	cloud := &cloud{batchGet: func(ctx context.Context, _ *pb.BatchGetInstancesRequest) (*pb.BatchGetInstancesResponse, error) {
		call, there := sdk.CallFrom(ctx)
		if left, bounded := call.Remaining(); !there || !bounded || left <= 0 || left > patience {
			return nil, fmt.Errorf("the call is %+v", call)
		}
		calls <- call
		return &pb.BatchGetInstancesResponse{}, nil
	}}
	log := &buffer{}
	debug := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	client := pb.NewInstancesClient(serve(t, provider(t, cloud, sdk.WithLogger(debug))).dial(t))
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := metadata.AppendToOutgoingContext(soon(t), "x-request-id", "request-7", "traceparent", parent)
	if _, err := client.BatchGetInstances(ctx, queries("a")); err != nil {
		t.Fatal(err)
	}
	call := receive(t, calls, "the call")
	if call.Method != "BatchGetInstances" || call.RequestID != "request-7" || call.TraceParent != parent ||
		call.Cluster.GetUid() != "cluster-1" || call.Peer.AuthType() != "unix" {
		t.Errorf("got %+v", call)
	}
	if _, err := client.BatchGetInstances(metadata.AppendToOutgoingContext(soon(t), "x-request-id", strings.Repeat("x", 65)), queries("a")); err != nil {
		t.Fatal(err)
	}
	if other := receive(t, calls, "the call"); other.RequestID == "" || len(other.RequestID) > 64 {
		t.Errorf("the request id is %q", other.RequestID)
	}
	if text := log.String(); !strings.Contains(text, "trace_id=0af7651916cd43dd8448eb211c80319c") {
		t.Errorf("the log does not name the trace: %s", text)
	}
	if _, there := sdk.CallFrom(context.Background()); there {
		t.Error("a call out of nothing")
	}
}

func TestMalformedRequestsReachNoMethod(t *testing.T) {
	cloud := &cloud{batchGet: func(context.Context, *pb.BatchGetInstancesRequest) (*pb.BatchGetInstancesResponse, error) {
		panic("reached")
	}}
	limits := sdk.WithCapabilities(&pb.GetCapabilitiesResponse{Limits: &pb.Limits{MaxBatchInstances: 2}})
	client := pb.NewInstancesClient(serve(t, provider(t, cloud, limits)).dial(t))
	_, err := client.BatchGetInstances(soon(t), &pb.BatchGetInstancesRequest{})
	expect(t, err, codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENT_SHAPE)
	_, err = client.BatchGetInstances(soon(t), queries("a", "a"))
	expect(t, err, codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENT_SHAPE)
	_, err = client.BatchGetInstances(soon(t), queries("a", "b", "c"))
	expect(t, err, codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_BATCH_TOO_LARGE)
	if found, _ := fault.FromStatus(err); found.Metadata("max") != "2" {
		t.Errorf("got %v", found)
	}
}

func TestPageSizesAreWithinBounds(t *testing.T) {
	cloud := &cloud{list: func(_ context.Context, request *pb.ListInstancesRequest) (*pb.ListInstancesResponse, error) {
		return &pb.ListInstancesResponse{NextPageToken: fmt.Sprint(request.GetPageSize())}, nil
	}}
	client := pb.NewInstancesClient(serve(t, provider(t, cloud)).dial(t))
	for asked, want := range map[int32]string{0: "500", 7: "7", 501: "500"} {
		answer, err := client.ListInstances(soon(t), &pb.ListInstancesRequest{Cluster: clusterRef(), PageSize: asked})
		if err != nil || answer.GetNextPageToken() != want {
			t.Errorf("%d became %v %v", asked, answer, err)
		}
	}
}

func TestWithoutLeadershipAnybodyMayCall(t *testing.T) {
	conn := serve(t, provider(t, &cloud{}, sdk.WithoutLeadership())).dial(t)
	answer, err := pb.NewCloudProviderClient(conn).GetCapabilities(soon(t), &pb.GetCapabilitiesRequest{})
	if err != nil || slices.Contains(answer.GetCapabilities(), pb.Capability_CAPABILITY_LEADERSHIP) {
		t.Error(answer, err)
	}
	_, err = pb.NewCloudProviderClient(conn).Lead(soon(t), &pb.LeadRequest{Cluster: clusterRef(), Fencing: &pb.Fencing{}})
	expect(t, err, codes.Unimplemented, pb.ErrorReason_ERROR_REASON_METHOD_NOT_SUPPORTED)
	for _, epoch := range []uint64{5, 4} {
		request := ensureRequest()
		request.Fencing = &pb.Fencing{Scope: "lease", Epoch: epoch}
		if _, err := pb.NewLoadBalancersClient(conn).EnsureLoadBalancer(soon(t), request); err != nil {
			t.Error(epoch, err)
		}
	}
}

// [R:stale-revision]
func TestOvertakenRevisions(t *testing.T) {
	cloud := &cloud{update: func(_ context.Context, request *pb.BatchUpdateLoadBalancersRequest) (*pb.BatchUpdateLoadBalancersResponse, error) {
		answer := &pb.BatchUpdateLoadBalancersResponse{}
		for _, item := range request.GetItems() {
			answer.Results = append(answer.Results, &pb.LoadBalancerUpdateResult{
				ServiceUid: item.GetService().GetRef().GetUid(), Outcome: pb.UpdateOutcome_UPDATE_OUTCOME_UPDATED,
			})
		}
		return answer, nil
	}}
	client := pb.NewLoadBalancersClient(serve(t, provider(t, cloud)).dial(t))
	request := ensureRequest()
	request.Revision = 10
	if _, err := client.EnsureLoadBalancer(soon(t), request); err != nil {
		t.Fatal(err)
	}
	request.Revision = 9
	_, err := client.EnsureLoadBalancer(soon(t), request)
	expect(t, err, codes.Aborted, pb.ErrorReason_ERROR_REASON_STALE_REVISION)
	answer, err := client.BatchUpdateLoadBalancers(soon(t), &pb.BatchUpdateLoadBalancersRequest{
		Cluster: clusterRef(), Fencing: &pb.Fencing{}, Backends: &pb.BackendSet{},
		Items: []*pb.LoadBalancerUpdate{
			{Service: service("service-1"), DesiredDigest: "d", Revision: 8},
			{Service: service("service-2"), DesiredDigest: "d", Revision: 1},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]pb.ErrorReason{}
	for _, result := range answer.GetResults() {
		got[result.GetServiceUid()] = result.GetError().GetReason()
	}
	if len(got) != 2 || got["service-1"] != pb.ErrorReason_ERROR_REASON_STALE_REVISION || got["service-2"] != 0 {
		t.Errorf("got %v", got)
	}
	if _, err := client.DeleteLoadBalancer(soon(t), &pb.DeleteLoadBalancerRequest{
		Cluster: clusterRef(), Fencing: &pb.Fencing{}, Service: service("service-1").GetRef(), Revision: 11,
	}); err != nil {
		t.Fatal(err)
	}
	request.Revision = 10
	_, err = client.EnsureLoadBalancer(soon(t), request)
	expect(t, err, codes.Aborted, pb.ErrorReason_ERROR_REASON_STALE_REVISION)
}

// [R:deadline-honoured] A method that ignores its context does not hold up its caller.
func TestDeadlinesAreAnsweredInTime(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	cloud := &cloud{batchGet: func(context.Context, *pb.BatchGetInstancesRequest) (*pb.BatchGetInstancesResponse, error) {
		<-release
		return nil, nil
	}}
	client := pb.NewInstancesClient(serve(t, provider(t, cloud)).dial(t))
	ctx, done := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer done()
	_, err := client.BatchGetInstances(ctx, queries("a"))
	expect(t, err, codes.DeadlineExceeded, 0)
}

// A read that nobody waits for is cancelled.
func TestAReadEndsWithItsCaller(t *testing.T) {
	begun, told := make(chan bool, 1), make(chan error, 1)
	cloud := &cloud{batchGet: func(ctx context.Context, _ *pb.BatchGetInstancesRequest) (*pb.BatchGetInstancesResponse, error) {
		begun <- true
		<-ctx.Done()
		told <- ctx.Err()
		return nil, ctx.Err()
	}}
	client := pb.NewInstancesClient(serve(t, provider(t, cloud)).dial(t))
	ctx, cancel := context.WithCancel(soon(t))
	go func() {
		<-begun
		cancel()
	}()
	_, err := client.BatchGetInstances(ctx, queries("a"))
	expect(t, err, codes.Canceled, 0)
	if err := receive(t, told, "the end"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// D3: one Service that hangs in a cloud that works is that Service's failure; many at once, or a read, show the cloud.
func TestTheOwnLimitOfAMutationOfOneObjectIsThatObjectsFailure(t *testing.T) {
	late := fmt.Errorf("POST /balancers: %w", context.DeadlineExceeded)
	cloud := &cloud{
		ensure: func(context.Context, *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error) {
			return nil, late
		},
		update: func(context.Context, *pb.BatchUpdateLoadBalancersRequest) (*pb.BatchUpdateLoadBalancersResponse, error) {
			return nil, late
		},
	}
	client := pb.NewLoadBalancersClient(serve(t, provider(t, cloud)).dial(t))
	_, err := client.EnsureLoadBalancer(soon(t), ensureRequest())
	expect(t, err, codes.Internal, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR)
	if text := status.Convert(err).Message(); text != "the provider gave up after 0s: its call to the cloud did not return in time" {
		t.Error(text)
	}
	for items, want := range map[int]pb.ErrorReason{1: pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR, 2: pb.ErrorReason_ERROR_REASON_CLOUD_API_UNAVAILABLE} {
		asked := ensureRequest()
		batch := &pb.BatchUpdateLoadBalancersRequest{Cluster: asked.GetCluster(), Fencing: asked.GetFencing(), Backends: asked.GetBackends()}
		for at := range items {
			service := proto.CloneOf(asked.GetService())
			service.Ref.Uid += strconv.Itoa(at)
			batch.Items = append(batch.Items, &pb.LoadBalancerUpdate{Service: service, DesiredDigest: "d", Revision: 1})
		}
		_, err := client.BatchUpdateLoadBalancers(soon(t), batch)
		expect(t, err, fault.CodeOf(want), want)
	}
}

// [R:mutation-finishes]
func TestAMutationIsFinishedThoughItsCallerIsGone(t *testing.T) {
	begun, finished, gone := make(chan bool, 1), make(chan error, 1), make(chan bool, 1)
	cloud := &cloud{ensure: func(ctx context.Context, _ *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error) {
		call, _ := sdk.CallFrom(ctx)
		begun <- true
		<-call.CallerGone
		gone <- true
		if _, bounded := ctx.Deadline(); !bounded {
			finished <- errors.New("the work has no bound")
		}
		finished <- ctx.Err()
		return &pb.EnsureLoadBalancerResponse{}, nil
	}}
	client := pb.NewLoadBalancersClient(serve(t, provider(t, cloud)).dial(t))
	ctx, cancel := context.WithCancel(soon(t))
	go func() {
		<-begun
		cancel()
	}()
	_, err := client.EnsureLoadBalancer(ctx, ensureRequest())
	expect(t, err, codes.Canceled, 0)
	receive(t, gone, "the news that the caller is gone")
	if err := receive(t, finished, "the end of the mutation"); err != nil {
		t.Errorf("the mutation was ended: %v", err)
	}
}

// What a host does after a lost answer or a passed deadline.
func TestAnEqualMutationJoinsTheOneThatRuns(t *testing.T) {
	begun, release, running := make(chan bool, 9), make(chan bool), atomic.Int32{}
	cloud := &cloud{ensure: func(_ context.Context, request *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error) {
		if running.Add(1) > 1 {
			t.Error("two run at once")
		}
		defer running.Add(-1)
		request.Service.Labels["d"] = "written by the method" // D12
		begun <- true
		<-release
		return &pb.EnsureLoadBalancerResponse{LoadBalancer: &pb.LoadBalancer{Id: "one"}}, nil
	}}
	client := pb.NewLoadBalancersClient(serve(t, provider(t, cloud)).dial(t))
	request := ensureRequest()
	request.Service.Labels = map[string]string{"a": "1", "b": "2", "c": "3"}
	answers := make(chan string, 2)
	ensure := func() {
		answer, err := client.EnsureLoadBalancer(soon(t), request)
		answers <- fmt.Sprint(answer.GetLoadBalancer().GetId(), err)
	}
	go ensure()
	receive(t, begun, "the mutation")
	hasty, done := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer done()
	if _, err := client.EnsureLoadBalancer(hasty, request); err == nil {
		t.Error("an answer out of nothing")
	}
	go ensure()
	if _, err := client.ListLoadBalancers(soon(t), &pb.ListLoadBalancersRequest{Cluster: clusterRef()}); err != nil {
		t.Fatal(err)
	}
	close(release)
	for range 2 {
		if got := receive(t, answers, "an answer"); got != "one<nil>" {
			t.Errorf("got %s", got)
		}
	}
	if _, err := client.EnsureLoadBalancer(soon(t), request); err != nil {
		t.Error(err)
	}
}

func TestAMutationOnAKeyThatAnotherOneWorksOnIsRefused(t *testing.T) {
	begun, release := make(chan bool, 9), make(chan bool)
	cloud := &cloud{
		ensure: func(context.Context, *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error) {
			begun <- true
			<-release
			return &pb.EnsureLoadBalancerResponse{}, nil
		},
		update: func(_ context.Context, request *pb.BatchUpdateLoadBalancersRequest) (*pb.BatchUpdateLoadBalancersResponse, error) {
			answer := &pb.BatchUpdateLoadBalancersResponse{}
			for _, item := range request.GetItems() {
				// "doubled" is answered twice, "lacking" not at all.
				uid := item.GetService().GetRef().GetUid()
				times := map[string]int{"doubled": 2, "lacking": 0, "free": 1}[uid]
				for range times {
					answer.Results = append(answer.Results, &pb.LoadBalancerUpdateResult{ServiceUid: uid, Outcome: pb.UpdateOutcome_UPDATE_OUTCOME_UPDATED})
				}
			}
			return answer, nil
		},
	}
	client := pb.NewLoadBalancersClient(serve(t, provider(t, cloud)).dial(t))
	request := ensureRequest()
	busy := request.GetService().GetRef().GetUid()
	ended := make(chan error, 1)
	go func() {
		_, err := client.EnsureLoadBalancer(soon(t), request)
		ended <- err
	}()
	receive(t, begun, "the mutation")

	other := ensureRequest()
	other.DesiredDigest = "another"
	_, err := client.EnsureLoadBalancer(soon(t), other)
	expect(t, err, codes.Aborted, pb.ErrorReason_ERROR_REASON_CONCURRENT_OPERATION)
	items := []*pb.LoadBalancerUpdate{}
	for _, uid := range []string{busy, "free", "doubled", "lacking"} {
		items = append(items, &pb.LoadBalancerUpdate{Service: service(uid), DesiredDigest: "d"})
	}
	answer, err := client.BatchUpdateLoadBalancers(soon(t), &pb.BatchUpdateLoadBalancersRequest{
		Cluster: clusterRef(), Fencing: &pb.Fencing{}, Backends: &pb.BackendSet{}, Items: items,
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]pb.ErrorReason{}
	for _, result := range answer.GetResults() {
		got[result.GetServiceUid()] = result.GetError().GetReason()
	}
	want := map[string]pb.ErrorReason{
		busy: pb.ErrorReason_ERROR_REASON_CONCURRENT_OPERATION, "free": 0,
		"doubled": pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR, "lacking": pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR,
	}
	if !maps.Equal(got, want) || len(answer.GetResults()) != len(want) {
		t.Errorf("got %v", answer.GetResults())
	}
	close(release)
	if err := receive(t, ended, "the end of the first"); err != nil {
		t.Error(err)
	}
	if _, err := client.EnsureLoadBalancer(soon(t), other); err != nil {
		t.Errorf("the key stays busy: %v", err)
	}
}

func TestOnlyWhatIsThereIsServed(t *testing.T) {
	made := provider(t, &cloud{}, sdk.WithInstances(onlyInstances{&cloud{}}), sdk.WithLoadBalancers(nil))
	conn := serve(t, made).dial(t)
	client := pb.NewInstancesClient(conn)
	_, err := client.ListInstances(soon(t), &pb.ListInstancesRequest{})
	expect(t, err, codes.Unimplemented, pb.ErrorReason_ERROR_REASON_METHOD_NOT_SUPPORTED)
	_, err = client.AddSshKeyToAllInstances(soon(t), &pb.AddSshKeyToAllInstancesRequest{})
	expect(t, err, codes.Unimplemented, pb.ErrorReason_ERROR_REASON_METHOD_NOT_SUPPORTED)
	stream, err := client.WatchInstances(soon(t), &pb.WatchInstancesRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	expect(t, err, codes.Unimplemented, pb.ErrorReason_ERROR_REASON_METHOD_NOT_SUPPORTED)
	_, err = pb.NewLoadBalancersClient(conn).ListLoadBalancers(soon(t), &pb.ListLoadBalancersRequest{Cluster: clusterRef()})
	expect(t, err, codes.Unimplemented, 0)
}

// The default limit is 16 MiB in both directions: more than gRPC's own 4 MiB, but bounded.
func TestMessageLimits(t *testing.T) {
	cloud := &cloud{batchGet: func(_ context.Context, request *pb.BatchGetInstancesRequest) (*pb.BatchGetInstancesResponse, error) {
		labels := request.GetQueries()[0].GetNode().GetLabels()
		return &pb.BatchGetInstancesResponse{Results: []*pb.InstanceResult{{Key: "a", Instance: &pb.Instance{Labels: labels}}}}, nil
	}}
	client := pb.NewInstancesClient(serve(t, provider(t, cloud)).dial(t))
	for size, want := range map[int]codes.Code{5 << 20: codes.OK, 17 << 20: codes.ResourceExhausted} {
		request := queries("a")
		request.Queries[0].Node.Labels = map[string]string{"large": strings.Repeat("x", size)}
		_, err := client.BatchGetInstances(soon(t), request, grpc.MaxCallSendMsgSize(64<<20))
		expect(t, err, want, 0)
	}
}

func TestNoMoreCallsRunAtOnceThanAreAdvertised(t *testing.T) {
	begun, release := make(chan bool, 9), make(chan bool)
	cloud := &cloud{ensure: func(context.Context, *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error) {
		begun <- true
		<-release
		return &pb.EnsureLoadBalancerResponse{}, nil
	}}
	limits := sdk.WithCapabilities(&pb.GetCapabilitiesResponse{Limits: &pb.Limits{MaxConcurrentMutations: 1}})
	conn := serve(t, provider(t, cloud, limits)).dial(t)
	client, first := pb.NewLoadBalancersClient(conn), make(chan error, 1)
	go func() {
		_, err := client.EnsureLoadBalancer(soon(t), ensureRequest())
		first <- err
	}()
	receive(t, begun, "the first mutation")
	other := ensureRequest()
	other.Service.Ref.Uid = "another"
	hasty, done := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer done()
	_, err := client.EnsureLoadBalancer(hasty, other)
	expect(t, err, codes.DeadlineExceeded, 0)
	if _, err := pb.NewInstancesClient(conn).BatchGetInstances(soon(t), queries("a")); err != nil || len(begun) > 0 {
		t.Errorf("a read: %v; %d further mutations", err, len(begun))
	}
	close(release)
	if err := receive(t, first, "its answer"); err != nil {
		t.Error(err)
	}
	// On a busy machine the hasty call may never have arrived.
	if _, err := client.EnsureLoadBalancer(soon(t), other); err != nil {
		t.Error(err)
	}
	receive(t, begun, "the second mutation")
}
