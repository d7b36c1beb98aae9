package sdk

import (
	"fmt"
	"testing"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// A set that comes again is decoded once, and every request is as if it had been decoded by itself.
func TestASetOfBackendsIsDecodedOnce(t *testing.T) {
	codec := newCodec()
	decoded := func(text []byte) *pb.EnsureLoadBalancerRequest {
		t.Helper()
		got, want := &pb.EnsureLoadBalancerRequest{}, &pb.EnsureLoadBalancerRequest{}
		if err := proto.Unmarshal(text, want); err != nil {
			t.Fatal(err)
		}
		if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(text)}, got); err != nil || !proto.Equal(got, want) {
			t.Fatalf("%v instead of %v, %v", got, want, err)
		}
		return got
	}
	encoded := func(message proto.Message) []byte {
		text, err := proto.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	request := func(uid string, nodes ...*pb.NodeRef) *pb.EnsureLoadBalancerRequest {
		return &pb.EnsureLoadBalancerRequest{
			Service: &pb.Service{Ref: &pb.ServiceRef{Uid: uid}}, DesiredDigest: uid, Backends: &pb.BackendSet{Digest: "d", Nodes: nodes},
		}
	}
	a, b := &pb.NodeRef{Name: "a"}, &pb.NodeRef{Name: "b"}
	first, second := decoded(encoded(request("1", a, b))), decoded(encoded(request("2", a, b)))
	if first.GetBackends() != second.GetBackends() {
		t.Error("decoded twice")
	}
	if third := decoded(encoded(request("3", a))); third.GetBackends() == first.GetBackends() {
		t.Error("another set of the same digest is the same")
	}
	decoded(nil)
	decoded(encoded(&pb.EnsureLoadBalancerRequest{Backends: &pb.BackendSet{}}))
	decoded(encoded(&pb.EnsureLoadBalancerRequest{DesiredDigest: "no set"}))
	// In two parts, as the encoding allows.
	decoded(append(encoded(request("4", a)), encoded(request("4", b))...))
	for i := range 10 * keptBackendSets {
		decoded(encoded(request("5", &pb.NodeRef{Name: fmt.Sprint(i)})))
	}
	if len(codec.sets) > keptBackendSets {
		t.Errorf("%d sets are kept", len(codec.sets))
	}
	for _, broken := range [][]byte{{0x22}, {0x22, 0x05, 0x01}, {0x22, 0x02, 0x12, 0x7f}, {0xff}} {
		if codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(broken)}, &pb.EnsureLoadBalancerRequest{}) == nil {
			t.Errorf("%x was decoded", broken)
		}
	}
}
