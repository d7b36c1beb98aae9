package main_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"cloudprovider.ccm/bridged-aws/emulator"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// service returns a Service with port 80; annotations select the kind of balancer.
func service(uid string, annotations map[string]string) *pb.Service {
	return &pb.Service{
		Ref: &pb.ServiceRef{Namespace: "default", Name: "web-" + uid, Uid: uid}, Annotations: annotations,
		Ports: []*pb.ServicePort{{Name: "http", Protocol: pb.Protocol_PROTOCOL_TCP, Port: 80, NodePort: 30080}},
	}
}

func TestABalancerIsCreatedUpdatedAndDeleted(t *testing.T) {
	for kind, annotations := range map[string]map[string]string{
		"classic": nil,
		"network": {"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"},
	} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			balancers := pb.NewLoadBalancersClient(w.conn)
			first, firstNode := w.initialized(emulator.Zones[0])
			second, secondNode := w.initialized(emulator.Zones[1])
			groups := must(w.cloud.SecurityGroups(w.ctx, w.network))(t)
			wish := service("5e7c1a9e-0000-4000-8000-000000000001", annotations)

			made := must(balancers.EnsureLoadBalancer(w.ctx, &pb.EnsureLoadBalancerRequest{
				Cluster: cluster(), Fencing: &pb.Fencing{}, Service: wish, DesiredDigest: "one node",
				Backends: &pb.BackendSet{Nodes: []*pb.NodeRef{firstNode}},
			}))(t).GetLoadBalancer()
			stands := w.balancer(kind)
			if len(made.GetIngress()) != 1 || made.GetIngress()[0].GetHostname() != stands.DNS || made.GetName() != stands.Name {
				t.Errorf("the answer is %v, the cloud has %v", made, stands)
			}
			if !slices.Equal(stands.Ports, []int32{80}) || !slices.Equal(stands.Instances, []string{first.ID}) {
				t.Errorf("made %v", stands)
			}

			updated := must(balancers.BatchUpdateLoadBalancers(w.ctx, &pb.BatchUpdateLoadBalancersRequest{
				Cluster: cluster(), Fencing: &pb.Fencing{},
				Backends: &pb.BackendSet{Nodes: []*pb.NodeRef{firstNode, secondNode}},
				Items:    []*pb.LoadBalancerUpdate{{Service: wish, DesiredDigest: "two nodes"}},
			}))(t).GetResults()[0]
			both := []string{first.ID, second.ID}
			slices.Sort(both)
			if got := w.balancer(kind); updated.GetOutcome() != pb.UpdateOutcome_UPDATE_OUTCOME_UPDATED || !slices.Equal(got.Instances, both) {
				t.Errorf("%v; updated to %v, want %v", updated, got, both)
			}

			wish.Ports = append(wish.Ports, &pb.ServicePort{Name: "https", Protocol: pb.Protocol_PROTOCOL_TCP, Port: 443, NodePort: 30443})
			wish.Ingress = made.GetIngress()
			must(balancers.EnsureLoadBalancer(w.ctx, &pb.EnsureLoadBalancerRequest{
				Cluster: cluster(), Fencing: &pb.Fencing{}, Service: wish, DesiredDigest: "two ports",
				Backends: &pb.BackendSet{Nodes: []*pb.NodeRef{firstNode, secondNode}},
			}))(t)
			if got := w.balancer(kind); !slices.Equal(got.Ports, []int32{80, 443}) || !slices.Equal(got.Instances, both) {
				t.Errorf("got %v, want ports 80 and 443", got)
			}

			must(balancers.DeleteLoadBalancer(w.ctx, &pb.DeleteLoadBalancerRequest{
				Cluster: cluster(), Fencing: &pb.Fencing{}, Service: wish.GetRef(), LastKnown: wish,
			}))(t)
			if left := must(w.cloud.Balancers(w.ctx))(t); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
			if left := must(w.cloud.SecurityGroups(w.ctx, w.network))(t); !slices.Equal(left, groups) {
				t.Errorf("security groups left behind: %v, before: %v", left, groups)
			}
		})
	}
}

// Only another Service helps, so that the host does not try again and again.
func TestWhatTheProviderNeverServesIsUnsupported(t *testing.T) {
	w := newWorld(t)
	_, node := w.initialized(emulator.Zones[0])
	for field, change := range map[string]func(*pb.Service){
		"spec.ports: mixed": func(wish *pb.Service) {
			wish.Ports = append(wish.Ports, &pb.ServicePort{Name: "dns", Protocol: pb.Protocol_PROTOCOL_UDP, Port: 53, NodePort: 30053})
		},
		"spec.ports: Protocol UDP": func(wish *pb.Service) { wish.Ports[0].Protocol = pb.Protocol_PROTOCOL_UDP },
		"spec.sessionAffinity":     func(wish *pb.Service) { wish.ClientIpAffinity = durationpb.New(time.Hour) },
		"spec.loadBalancerIP":      func(wish *pb.Service) { wish.LoadBalancerIp = "192.0.2.1" },
	} {
		wish := service("5e7c1a9e-0000-4000-8000-000000000001", nil)
		change(wish)
		_, err := pb.NewLoadBalancersClient(w.conn).EnsureLoadBalancer(w.ctx, &pb.EnsureLoadBalancerRequest{
			Cluster: cluster(), Fencing: &pb.Fencing{}, Service: wish, DesiredDigest: "one",
			Backends: &pb.BackendSet{Nodes: []*pb.NodeRef{node}},
		})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if made := must(w.cloud.Balancers(w.ctx))(t); len(made) != 0 {
		t.Errorf("made %v", made)
	}
}

// balancer returns the only balancer, which must be of this kind.
func (w *world) balancer(kind string) emulator.Balancer {
	w.Helper()
	all := must(w.cloud.Balancers(w.ctx))(w.T)
	if len(all) != 1 || all[0].Kind != kind {
		w.Fatalf("got balancers %v, want one of kind %s", all, kind)
	}
	return all[0]
}
