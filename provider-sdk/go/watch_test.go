package sdk_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
)

func intervals(bookmark, age time.Duration) sdk.Option {
	return sdk.WithCapabilities(&pb.GetCapabilitiesResponse{Intervals: &pb.Intervals{
		BookmarkInterval: durationpb.New(bookmark), WatchMaxAge: durationpb.New(age),
	}})
}

func watch(t *testing.T, served *served) grpc.ServerStreamingClient[pb.WatchInstancesResponse] {
	t.Helper()
	stream, err := pb.NewInstancesClient(served.dial(t)).WatchInstances(soon(t), &pb.WatchInstancesRequest{Cluster: clusterRef()})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func frame(t *testing.T, stream grpc.ServerStreamingClient[pb.WatchInstancesResponse]) *pb.WatchInstancesResponse {
	t.Helper()
	got, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func end(stream grpc.ServerStreamingClient[pb.WatchInstancesResponse]) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}

// [R:watch-started] [R:watch-bookmark]
func TestAWatchIsFramed(t *testing.T) {
	events := make(chan sdk.WatchEvent)
	cloud := &cloud{watch: func(context.Context, *pb.WatchInstancesRequest) (*sdk.Watch, error) {
		return &sdk.Watch{Resumed: true, Events: events}, nil
	}}
	stream := watch(t, serve(t, provider(t, cloud, intervals(40*time.Millisecond, time.Hour))))
	if first := frame(t, stream); !first.GetStarted().GetResumed() {
		t.Fatalf("the first frame is %v", first)
	}
	if beat := frame(t, stream); beat.GetBookmark() == nil || beat.GetBookmark().GetResumeToken() != "" {
		t.Fatalf("the heartbeat is %v", beat)
	}
	events <- sdk.Changed(&pb.InstanceChanged{ProviderId: "test://1"})
	events <- sdk.Bookmark("token-1")
	var change, tokens bool
	for !change || !tokens {
		got := frame(t, stream)
		change = change || got.GetChanged().GetProviderId() == "test://1"
		tokens = tokens || got.GetBookmark().GetResumeToken() == "token-1"
	}
	if beat := frame(t, stream); beat.GetBookmark().GetResumeToken() != "token-1" {
		t.Errorf("a heartbeat does not repeat the token: %v", beat)
	}
	close(events)
	if err := end(stream); !errors.Is(err, io.EOF) {
		t.Errorf("the end is %v", err)
	}
}

func TestEndsOfAWatch(t *testing.T) {
	failed := make(chan sdk.WatchEvent, 1)
	failed <- sdk.Failed(fault.ResumeTokenExpired())
	for name, row := range map[string]struct {
		watch  func(context.Context) (*sdk.Watch, error)
		age    time.Duration
		code   codes.Code
		reason pb.ErrorReason
	}{
		"refused": {func(context.Context) (*sdk.Watch, error) { return nil, fault.InvalidToken() },
			time.Hour, codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_INVALID_TOKEN},
		"failed": {func(context.Context) (*sdk.Watch, error) { return &sdk.Watch{Events: failed}, nil },
			time.Hour, codes.OutOfRange, pb.ErrorReason_ERROR_REASON_RESUME_TOKEN_EXPIRED},
		"panic": {func(context.Context) (*sdk.Watch, error) { panic("x") },
			time.Hour, codes.Internal, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR},
		"nil": {func(context.Context) (*sdk.Watch, error) { return nil, nil },
			time.Hour, codes.Internal, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR},
		"old": {func(context.Context) (*sdk.Watch, error) { return &sdk.Watch{}, nil },
			50 * time.Millisecond, codes.OK, 0},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := &cloud{watch: func(ctx context.Context, _ *pb.WatchInstancesRequest) (*sdk.Watch, error) { return row.watch(ctx) }}
			err := end(watch(t, serve(t, provider(t, cloud, intervals(time.Hour, row.age)))))
			if errors.Is(err, io.EOF) {
				err = nil
			}
			expect(t, err, row.code, row.reason)
		})
	}
}

func TestAProviderLearnsThatNobodyWatches(t *testing.T) {
	over := make(chan bool, 1)
	cloud := &cloud{watch: func(ctx context.Context, _ *pb.WatchInstancesRequest) (*sdk.Watch, error) {
		context.AfterFunc(ctx, func() { over <- true })
		return &sdk.Watch{}, nil
	}}
	served := serve(t, provider(t, cloud))
	ctx, cancel := context.WithCancel(soon(t))
	stream, err := pb.NewInstancesClient(served.dial(t)).WatchInstances(ctx, &pb.WatchInstancesRequest{Cluster: clusterRef()})
	if err != nil {
		t.Fatal(err)
	}
	frame(t, stream)
	cancel()
	receive(t, over, "the end")
}

// D8: of a provider that issues no tokens, each is one that was never issued.
func TestATokenThatIsNotHonouredIsRefused(t *testing.T) {
	feed := sdk.NewChangeFeed(2)
	cloud := &cloud{watch: func(ctx context.Context, _ *pb.WatchInstancesRequest) (*sdk.Watch, error) {
		return feed.Watch(ctx), nil
	}}
	request := &pb.WatchInstancesRequest{Cluster: clusterRef(), ResumeToken: "of nobody"}
	stream, err := pb.NewInstancesClient(serve(t, provider(t, cloud)).dial(t)).WatchInstances(soon(t), request)
	if err == nil {
		_, err = stream.Recv()
	}
	expect(t, err, codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_INVALID_TOKEN)
}

func TestAFeedTellsEveryWatchAndEndsTheSlow(t *testing.T) {
	feed := sdk.NewChangeFeed(2)
	feed.Publish(&pb.InstanceChanged{ProviderId: "nobody watches"})
	ctx, cancel := context.WithCancel(context.Background())
	quick, slow := feed.Watch(ctx).Events, feed.Watch(context.Background()).Events
	var seen []int
	for range 3 {
		feed.Publish(&pb.InstanceChanged{})
		seen = append(seen, len(quick))
		<-quick
	}
	if !slices.Equal(seen, []int{1, 1, 1}) {
		t.Errorf("the quick one saw %v", seen)
	}
	kept := 0
	for range slow {
		kept++
	}
	if kept != 2 {
		t.Errorf("the slow one kept %d and went on", kept)
	}
	cancel()
	if _, open := receiveOpen(t, quick); open {
		t.Error("a watch outlives its context")
	}
	feed.Publish(&pb.InstanceChanged{})
}

func receiveOpen[T any](t *testing.T, from <-chan T) (got T, open bool) {
	t.Helper()
	select {
	case got, open = <-from:
	case <-time.After(patience):
		t.Fatal("never")
	}
	return got, open
}
