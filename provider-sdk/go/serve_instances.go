package sdk

import (
	"context"
	"errors"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc"
)

// instancesServer serves Instances. Optional methods that the provider lacks are not advertised, and so are refused before they are
// reached.
type instancesServer struct {
	pb.UnsafeInstancesServer
	core *core
	Instances
}

func (s *instancesServer) ListInstances(ctx context.Context, request *pb.ListInstancesRequest) (*pb.ListInstancesResponse, error) {
	return s.Instances.(InstanceLister).ListInstances(ctx, request)
}

func (s *instancesServer) AddSshKeyToAllInstances(ctx context.Context, request *pb.AddSshKeyToAllInstancesRequest) (*pb.AddSshKeyToAllInstancesResponse, error) {
	return s.Instances.(SSHKeyAdder).AddSshKeyToAllInstances(ctx, request)
}

// WatchInstances sends the frames of a provider's watch: the started frame, changes, heartbeats, and a timely end.
func (s *instancesServer) WatchInstances(request *pb.WatchInstancesRequest, stream grpc.ServerStreamingServer[pb.WatchInstancesResponse]) error {
	ctx, done := context.WithCancel(stream.Context())
	defer done()
	if call, known := ctx.Value(callKey{}).(*Call); known {
		if _, err := s.core.admit(ctx, call, request); err != nil {
			return err
		}
	}
	if gate := s.core.provider.gate; gate != nil {
		if err := gate(ctx, false); err != nil {
			return fail(ctx, err)
		}
	}
	watch, err := s.Instances.(InstanceWatcher).WatchInstances(ctx, request)
	if err == nil && watch == nil {
		err = errors.New("the method returned nil without an error")
	}
	if err != nil {
		return fail(ctx, err)
	}
	if request.GetResumeToken() != "" && !watch.Resumed {
		// The provider issues no tokens, or ignored this one: the caller must not believe that it has missed nothing.
		return fail(ctx, fault.InvalidToken())
	}
	if err := stream.Send(started(watch.Resumed)); err != nil {
		return err
	}
	return s.relay(ctx, watch, stream)
}

func (s *instancesServer) relay(ctx context.Context, watch *Watch, stream grpc.ServerStreamingServer[pb.WatchInstancesResponse]) error {
	advertised, life, token := s.core.provider.advertised, s.core.provider.life, ""
	end := time.NewTimer(advertised.watchMaxAge)
	defer end.Stop()
	// Bookmarks are due at least every interval, so they are sent a little more often.
	heartbeat := time.NewTicker(max(advertised.bookmarkInterval*3/4, time.Millisecond))
	defer heartbeat.Stop()
	for {
		frame := (*pb.WatchInstancesResponse)(nil)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-life.stop.Done():
			return fail(ctx, fault.ShuttingDown())
		case <-end.C:
			return nil
		case <-heartbeat.C:
			frame = bookmark(token)
		case event, open := <-watch.Events:
			switch {
			case !open:
				return nil
			case event.err != nil:
				return fail(ctx, event.err)
			case event.change != nil:
				frame = changed(event.change)
			default:
				token = event.bookmark
				frame = bookmark(token)
			}
		}
		if err := stream.Send(frame); err != nil {
			return err
		}
	}
}

func started(resumed bool) *pb.WatchInstancesResponse {
	return &pb.WatchInstancesResponse{
		Frame: &pb.WatchInstancesResponse_Started{Started: &pb.WatchStarted{Resumed: resumed}},
	}
}

func changed(change *pb.InstanceChanged) *pb.WatchInstancesResponse {
	return &pb.WatchInstancesResponse{Frame: &pb.WatchInstancesResponse_Changed{Changed: change}}
}

func bookmark(token string) *pb.WatchInstancesResponse {
	return &pb.WatchInstancesResponse{
		Frame: &pb.WatchInstancesResponse_Bookmark{Bookmark: &pb.WatchBookmark{ResumeToken: token}},
	}
}
