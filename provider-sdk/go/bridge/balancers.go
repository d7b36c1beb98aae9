package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/proto"
	cloudprovider "k8s.io/cloud-provider"
)

// loadBalancers serves LoadBalancers.
type loadBalancers struct {
	*bridge
	balancers cloudprovider.LoadBalancer
	lanes     lanes
	pages     pages[*pb.LoadBalancer]
}

func newLoadBalancers(b *bridge, balancers cloudprovider.LoadBalancer) *loadBalancers {
	return &loadBalancers{bridge: b, balancers: balancers, pages: pages[*pb.LoadBalancer]{validity: b.tokenValidity, now: time.Now}}
}

func (l *loadBalancers) GetLoadBalancer(ctx context.Context, request *pb.GetLoadBalancerRequest) (*pb.GetLoadBalancerResponse, error) {
	ref := request.GetService()
	key := balancerKey{request.GetCluster().GetUid(), ref.GetUid()}
	if l.ledger.elsewhere(key) {
		return &pb.GetLoadBalancerResponse{LoadBalancer: &pb.LoadBalancer{
			Service: ref, State: pb.LoadBalancerState_LOAD_BALANCER_STATE_NOT_OWNED,
		}}, nil
	}
	service, known := &pb.Service{Ref: ref}, l.ledger.recall(key)
	if known != nil {
		service = known.service
	}
	out, err := one(ctx, l.bridge, "balancer "+ref.GetUid(), func(ctx context.Context) (*pb.LoadBalancer, error) {
		return l.look(ctx, l.clusterName(request.GetCluster()), service)
	})
	if err != nil {
		return nil, mapped(err, ref.GetUid())
	}
	out.Service = ref
	if known != nil && out.State == pb.LoadBalancerState_LOAD_BALANCER_STATE_ACTIVE {
		out.Ownership, out.AppliedDigest = known.balancer.GetOwnership(), known.balancer.GetAppliedDigest()
	}
	return &pb.GetLoadBalancerResponse{LoadBalancer: out}, nil
}

// look asks the provider for a balancer. Nothing but the name that the provider gives it says whose it is.
func (l *loadBalancers) look(ctx context.Context, cluster string, service *pb.Service) (*pb.LoadBalancer, error) {
	status, exists, err := l.balancers.GetLoadBalancer(ctx, cluster, serviceOf(service))
	switch {
	case err != nil:
		return nil, err
	case !exists:
		return &pb.LoadBalancer{State: pb.LoadBalancerState_LOAD_BALANCER_STATE_ABSENT}, nil
	case status == nil:
		return nil, errors.New("a balancer exists, but its status is nil")
	}
	return &pb.LoadBalancer{
		State: pb.LoadBalancerState_LOAD_BALANCER_STATE_ACTIVE, Ingress: ingressOf(status),
		Name:      l.balancers.GetLoadBalancerName(ctx, cluster, serviceOf(service)),
		Ownership: pb.Ownership_OWNERSHIP_BY_LEGACY_NAME,
	}, nil
}

func (l *loadBalancers) EnsureLoadBalancer(ctx context.Context, request *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error) {
	ref := request.GetService().GetRef()
	key := balancerKey{request.GetCluster().GetUid(), ref.GetUid()}
	if err := understood(request.GetService()); err != nil {
		return nil, err
	}
	leave, err := l.lanes.enter(ctx, ref.GetUid())
	if err != nil {
		return nil, err
	}
	defer leave()
	if l.ledger.elsewhere(key) {
		return nil, fault.OwnedByOtherCluster(ref.GetUid())
	}
	begun := l.ledger.now()
	if err := l.ledger.forget(key); err != nil {
		return nil, err
	}
	l.mirror.service(request.GetService())
	l.mirror.nodes(ctx, request.GetBackends().GetNodes()...)
	out := &pb.LoadBalancer{
		Service: ref, State: pb.LoadBalancerState_LOAD_BALANCER_STATE_ACTIVE, Ownership: pb.Ownership_OWNERSHIP_BY_UID,
		AppliedDigest: request.GetDesiredDigest(),
	}
	err = guarded(func() error {
		service, cluster := serviceOf(request.GetService()), l.clusterName(request.GetCluster())
		out.Name = l.balancers.GetLoadBalancerName(ctx, cluster, service)
		status, err := l.balancers.EnsureLoadBalancer(ctx, cluster, service, nodesOf(request.GetBackends().GetNodes()))
		if err == nil && status == nil {
			err = errors.New("the balancer's status is nil")
		}
		if err == nil {
			out.Ingress = ingressOf(status)
		}
		return err
	})
	if progress := inProgress(err); progress != nil {
		out.State, out.AppliedDigest = pb.LoadBalancerState_LOAD_BALANCER_STATE_PENDING, ""
		return &pb.EnsureLoadBalancerResponse{LoadBalancer: out, InProgress: progress}, nil
	}
	if err != nil {
		return nil, mapped(err, ref.GetUid())
	}
	l.ledger.remember(key, begun, &applied{wanted(request.GetService()), out})
	return &pb.EnsureLoadBalancerResponse{LoadBalancer: proto.CloneOf(out)}, nil
}

// understood refuses what has no translation: a provider would see a port without a protocol.
func understood(service *pb.Service) error {
	for at, port := range service.GetPorts() {
		if _, known := protocols[port.GetProtocol()]; !known {
			return fault.UnsupportedFeature(fmt.Sprintf("spec.ports[%d].protocol", at), "this protocol is not known here")
		}
	}
	return nil
}

// wanted answers what is wanted of a Service, without what its status says.
func wanted(service *pb.Service) *pb.Service {
	out := proto.CloneOf(service)
	out.Ingress = nil
	return out
}

func (l *loadBalancers) BatchUpdateLoadBalancers(ctx context.Context, request *pb.BatchUpdateLoadBalancersRequest) (*pb.BatchUpdateLoadBalancersResponse, error) {
	sets := make([][]*pb.NodeRef, len(request.GetBackendSets()))
	for i, set := range request.GetBackendSets() {
		sets[i] = set.GetNodes()
		l.mirror.nodes(ctx, sets[i]...)
	}
	update := func(ctx context.Context, item *pb.LoadBalancerUpdate) *pb.LoadBalancerUpdateResult {
		err := guarded(func() error { return l.update(ctx, request.GetCluster(), item, sets[item.GetBackendSet()]) })
		return updateResult(item, err)
	}
	return &pb.BatchUpdateLoadBalancersResponse{Results: each(ctx, l.concurrency, request.GetItems(), update)}, nil
}

func (l *loadBalancers) update(ctx context.Context, cluster *pb.ClusterRef, item *pb.LoadBalancerUpdate, nodes []*pb.NodeRef) error {
	uid := item.GetService().GetRef().GetUid()
	key := balancerKey{cluster.GetUid(), uid}
	leave, err := l.lanes.enter(ctx, uid)
	if err != nil {
		return err
	}
	defer leave()
	// An update replaces backends and nothing else: it must hold all the rest already.
	known, begun := l.ledger.recall(key), l.ledger.now()
	if known == nil || !proto.Equal(known.service, wanted(item.GetService())) {
		return fault.NeedsEnsure(uid)
	}
	if err := l.ledger.forget(key); err != nil {
		return err
	}
	err = l.balancers.UpdateLoadBalancer(ctx, l.clusterName(cluster), serviceOf(item.GetService()), nodesOf(nodes))
	if err != nil {
		return err
	}
	balancer := proto.CloneOf(known.balancer)
	balancer.AppliedDigest = item.GetDesiredDigest()
	l.ledger.remember(key, begun, &applied{known.service, balancer})
	return nil
}

func updateResult(item *pb.LoadBalancerUpdate, err error) *pb.LoadBalancerUpdateResult {
	uid := item.GetService().GetRef().GetUid()
	if err == nil {
		return &pb.LoadBalancerUpdateResult{ServiceUid: uid, Outcome: pb.UpdateOutcome_UPDATE_OUTCOME_UPDATED}
	}
	out := &pb.LoadBalancerUpdateResult{ServiceUid: uid, Outcome: pb.UpdateOutcome_UPDATE_OUTCOME_NOT_UPDATED}
	if out.InProgress = inProgress(err); out.InProgress == nil {
		out.Error = fault.Item(mapped(err, uid))
	}
	return out
}

func (l *loadBalancers) DeleteLoadBalancer(ctx context.Context, request *pb.DeleteLoadBalancerRequest) (*pb.DeleteLoadBalancerResponse, error) {
	ref := request.GetService()
	key := balancerKey{request.GetCluster().GetUid(), ref.GetUid()}
	leave, err := l.lanes.enter(ctx, ref.GetUid())
	if err != nil {
		return nil, err
	}
	defer leave()
	if l.ledger.elsewhere(key) {
		return &pb.DeleteLoadBalancerResponse{}, nil
	}
	service := serviceOf(l.lastKnown(key, request))
	if err := l.ledger.forget(key); err != nil {
		return nil, err
	}
	err = guarded(func() error {
		return l.balancers.EnsureLoadBalancerDeleted(ctx, l.clusterName(request.GetCluster()), service)
	})
	if progress := inProgress(err); progress != nil {
		return &pb.DeleteLoadBalancerResponse{InProgress: progress}, nil
	}
	// Whoever looks after it now keeps a finalizer of their own; ours must not stay for ever.
	if err != nil && !errors.Is(err, cloudprovider.ImplementedElsewhere) {
		return nil, mapped(err, ref.GetUid())
	}
	l.mirror.serviceGone(ref)
	return &pb.DeleteLoadBalancerResponse{}, nil
}

// lastKnown answers the fullest Service there is: the caller's hint, what was applied here, or its names alone.
func (l *loadBalancers) lastKnown(key balancerKey, request *pb.DeleteLoadBalancerRequest) *pb.Service {
	if hint := request.GetLastKnown(); hint.GetRef().GetUid() == key.service {
		return hint
	}
	if known := l.ledger.recall(key); known != nil {
		return known.service
	}
	return &pb.Service{Ref: request.GetService()}
}

func (l *loadBalancers) ListLoadBalancers(_ context.Context, request *pb.ListLoadBalancersRequest) (*pb.ListLoadBalancersResponse, error) {
	items, next, err := l.pages.page(request.GetPageToken(), request.GetPageSize(), func() ([]*pb.LoadBalancer, error) {
		all := l.ledger.all(request.GetCluster().GetUid())
		out := make([]*pb.LoadBalancer, len(all))
		for at, one := range all {
			out[at] = proto.CloneOf(one.balancer)
		}
		return out, nil
	})
	if err != nil {
		return nil, err
	}
	answer := &pb.ListLoadBalancersResponse{LoadBalancers: items, NextPageToken: next}
	if gap := l.ledger.gap(); gap != "" {
		answer.Unreachable = []*pb.UnreachableLocation{{
			Location: gap,
			Error:    fault.Item(fault.UnsupportedFeature("load_balancers", "a bridged provider cannot list what it made before")),
		}}
	}
	return answer, nil
}
