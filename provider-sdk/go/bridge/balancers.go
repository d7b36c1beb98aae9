package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// loadBalancers serves LoadBalancers.
type loadBalancers struct{ *bridge }

func (l *loadBalancers) GetLoadBalancer(ctx context.Context, request *pb.GetLoadBalancerRequest) (*pb.GetLoadBalancerResponse, error) {
	ref := request.GetService()
	key := balancerKey{request.GetCluster().GetUid(), ref.GetUid()}
	if l.memory.elsewhere(key) {
		return &pb.GetLoadBalancerResponse{LoadBalancer: &pb.LoadBalancer{
			Service: ref, State: pb.LoadBalancerState_LOAD_BALANCER_STATE_NOT_OWNED,
		}}, nil
	}
	known, mirror := l.memory.recall(key), l.mirrorOf(request.GetCluster())
	out, err := one(ctx, l.bridge, "balancer "+ref.GetUid(), func(ctx context.Context) (*pb.LoadBalancer, error) {
		// The real one also has what the provider wrote, by which some find the balancer.
		service, err := mirror.shown(ctx, cmp.Or(known.service, &pb.Service{Ref: ref}), func(*v1.Service) {})
		if err != nil {
			return nil, err
		}
		if known.service != nil {
			mirror.showAsTold(service, known.service)
		}
		return l.look(ctx, l.clusterName(request.GetCluster()), service)
	})
	if err != nil {
		return nil, l.mappedForService(err, ref.GetUid(), pb.ErrorReason_ERROR_REASON_UNSUPPORTED_FEATURE)
	}
	out.Service = ref
	if known.balancer != nil && out.State == pb.LoadBalancerState_LOAD_BALANCER_STATE_ACTIVE {
		out.Ownership, out.AppliedDigest = known.balancer.GetOwnership(), known.digest()
	}
	return &pb.GetLoadBalancerResponse{LoadBalancer: out}, nil
}

// look reads a load balancer from the provider. Only the name that the provider gives it shows who owns it.
func (l *loadBalancers) look(ctx context.Context, cluster string, service *v1.Service) (*pb.LoadBalancer, error) {
	status, exists, err := l.parts.balancers.GetLoadBalancer(ctx, cluster, service)
	switch {
	case err != nil:
		return nil, of(err, service)
	case !exists:
		return &pb.LoadBalancer{State: pb.LoadBalancerState_LOAD_BALANCER_STATE_ABSENT}, nil
	case status == nil:
		// Upstream's controllers look at no status here either: azure returns none once only an address is left.
		status = &v1.LoadBalancerStatus{}
	}
	return &pb.LoadBalancer{
		State: pb.LoadBalancerState_LOAD_BALANCER_STATE_ACTIVE, Ingress: ingressOf(status),
		Name:      l.parts.balancers.GetLoadBalancerName(ctx, cluster, service),
		Ownership: pb.Ownership_OWNERSHIP_BY_LEGACY_NAME,
	}, nil
}

func (l *loadBalancers) EnsureLoadBalancer(ctx context.Context, request *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error) {
	ref := request.GetService().GetRef()
	if err := understood(request.GetService()); err != nil {
		return nil, err
	}
	l.memory.leads(request.GetCluster(), request.GetFencing())
	wish := wishOf("ensure", request, request.GetDesiredDigest())
	waiting, done := withSpare(ctx)
	defer done()
	out, err := do(waiting, &l.balancerWorks, ref.GetUid(), wish, func(ctx context.Context) (*pb.LoadBalancer, error) {
		return l.ensure(ctx, request)
	})
	answer := &pb.EnsureLoadBalancerResponse{InProgress: inProgress(err)}
	if answer.InProgress == nil && err != nil {
		return nil, l.mappedForService(err, ref.GetUid(), pb.ErrorReason_ERROR_REASON_UNSUPPORTED_FEATURE)
	}
	answer.Events = l.events.take(ref.GetUid())
	if answer.InProgress != nil {
		answer.LoadBalancer = &pb.LoadBalancer{
			Service: ref, Name: out.GetName(), State: pb.LoadBalancerState_LOAD_BALANCER_STATE_PENDING, Ownership: pb.Ownership_OWNERSHIP_BY_UID,
		}
		return answer, nil
	}
	answer.LoadBalancer = proto.CloneOf(out)
	return answer, nil
}

// ensure returns the load balancer to record from now on; with an error, its name, if it has one.
func (l *loadBalancers) ensure(ctx context.Context, request *pb.EnsureLoadBalancerRequest) (*pb.LoadBalancer, error) {
	ref := request.GetService().GetRef()
	key := balancerKey{request.GetCluster().GetUid(), ref.GetUid()}
	if l.memory.elsewhere(key) {
		return nil, fault.OwnedByOtherCluster(ref.GetUid())
	}
	cluster, begun := l.clusterName(request.GetCluster()), l.memory.now(request.GetCluster())
	mirror := l.mirrorOf(request.GetCluster())
	service, err := mirror.shown(ctx, request.GetService(), mirror.service)
	if err != nil {
		return nil, err
	}
	mirror.showAsTold(service, request.GetService())
	nodes := mirror.backends(ctx, request.GetBackends())
	out := &pb.LoadBalancer{
		Service: ref, Name: l.parts.balancers.GetLoadBalancerName(ctx, cluster, service),
		State:     pb.LoadBalancerState_LOAD_BALANCER_STATE_ACTIVE,
		Ownership: pb.Ownership_OWNERSHIP_BY_UID, AppliedDigest: request.GetDesiredDigest(),
	}
	if err := ctx.Err(); err != nil {
		return nil, err // Not all providers look at it.
	}
	l.memory.begins(key, everything)
	status, err := l.parts.balancers.EnsureLoadBalancer(ctx, cluster, service, nodes)
	switch {
	case err != nil:
		return out, of(err, service, nodes...)
	case status == nil:
		return out, errors.New("the provider returned the balancer without its status")
	}
	mirror.applied(request.GetService(), status)
	l.reachable.answered()
	if status == &service.Status.LoadBalancer {
		// It passes on what it was given, since somebody else gives the Service its addresses: these are not to be kept.
		l.memory.ensured(key, begun, wanted(request.GetService()), proto.CloneOf(out))
		out.Ingress = request.GetService().GetIngress()
		return out, nil
	}
	out.Ingress = ingressOf(status)
	l.memory.ensured(key, begun, wanted(request.GetService()), out)
	return out, nil
}

// understood refuses protocols that the bridge cannot translate: the provider would see a port without a protocol.
func understood(service *pb.Service) error {
	for at, port := range service.GetPorts() {
		if _, known := protocols[port.GetProtocol()]; !known {
			return fault.UnsupportedFeature(fmt.Sprintf("spec.ports[%d].protocol", at), "the bridge does not know this protocol")
		}
	}
	return nil
}

// wanted returns the wanted state of a Service: without its status.
func wanted(service *pb.Service) *pb.Service { return withIngress(service, nil) }

func withIngress(service *pb.Service, ingress []*pb.LoadBalancerIngress) *pb.Service {
	out := proto.CloneOf(service)
	out.Ingress = ingress
	return out
}

func (l *loadBalancers) BatchUpdateLoadBalancers(ctx context.Context, request *pb.BatchUpdateLoadBalancersRequest) (*pb.BatchUpdateLoadBalancersResponse, error) {
	nodes := l.mirrorOf(request.GetCluster()).backends(ctx, request.GetBackends())
	l.memory.leads(request.GetCluster(), request.GetFencing())
	named := func(item *pb.LoadBalancerUpdate) (key, wish string) {
		return item.GetService().GetRef().GetUid(), wishOf("update", request, item.GetDesiredDigest())
	}
	update := func(ctx context.Context, item *pb.LoadBalancerUpdate) error {
		return l.update(ctx, request.GetCluster(), item, nodes)
	}
	results := changeEach(ctx, l.bridge, &l.balancerWorks, request.GetItems(), named, update, l.updateResult)
	// Not sooner: of an item that was given up, a second result comes that nobody reads.
	for _, result := range results {
		result.Events = l.events.take(result.GetServiceUid())
	}
	return &pb.BatchUpdateLoadBalancersResponse{Results: results}, nil
}

// update replaces the backends of a balancer. A failed Ensure is no obstacle: the provider is called with the Service that was
// applied, as the bridge remembers it or, if it was applied by an earlier process, as the host sent it.
func (l *loadBalancers) update(ctx context.Context, cluster *pb.ClusterRef, item *pb.LoadBalancerUpdate, nodes []*v1.Node) error {
	ref, name := item.GetService().GetRef(), l.clusterName(cluster)
	key := balancerKey{cluster.GetUid(), ref.GetUid()}
	known, begun := l.memory.recall(key), l.memory.now(cluster)
	if digest := known.digest(); digest != "" && digest == item.GetDesiredDigest() {
		return nil // Already applied; the answer was late or lost.
	}
	if l.memory.elsewhere(key) {
		return fault.NeedsEnsure(ref.GetUid()) // Which is refused.
	}
	applied := item.GetService()
	if known.service != nil {
		// An update replaces only backends, but some providers apply the whole Service that they receive.
		applied = withIngress(known.service, applied.GetIngress())
	}
	mirror := l.mirrorOf(cluster)
	service, err := mirror.shown(ctx, applied, mirror.service)
	if err != nil {
		return err
	}
	mirror.showAsTold(service, applied)
	balancer := proto.CloneOf(known.balancer)
	if balancer == nil {
		// An update creates nothing, but some providers' would.
		if balancer, err = l.look(ctx, name, service); err != nil {
			return err
		}
		if balancer.GetState() == pb.LoadBalancerState_LOAD_BALANCER_STATE_ABSENT {
			return fault.NeedsEnsure(ref.GetUid())
		}
		balancer.Service, balancer.Ownership = ref, pb.Ownership_OWNERSHIP_BY_UID
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	l.memory.begins(key, backends)
	err = guarded(func() error { return l.parts.balancers.UpdateLoadBalancer(ctx, name, service, slices.Clone(nodes)) })
	if err != nil {
		return l.orNeedsEnsure(ctx, key, name, service, of(err, service, nodes...))
	}
	l.reachable.answered()
	balancer.AppliedDigest = item.GetDesiredDigest()
	l.memory.updated(key, begun, balancer)
	return nil
}

// orNeedsEnsure returns the error of a failed update, or that only an Ensure can help: the balancer is gone, which upstream's
// controller finds out in the same way, or the update has failed before.
func (l *loadBalancers) orNeedsEnsure(ctx context.Context, key balancerKey, cluster string, service *v1.Service, err error) error {
	if inProgress(err) != nil || fault.ReasonOf(l.mapped(err, key.service)) != pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR {
		return err
	}
	found, unknown := l.look(ctx, cluster, service)
	gone := unknown == nil && found.GetState() == pb.LoadBalancerState_LOAD_BALANCER_STATE_ABSENT
	if again := l.memory.updateFailed(key); gone || again {
		slog.Warn("an update failed, so the balancer must be ensured", "service", key.service, "gone", gone, "error", err)
		return fault.NeedsEnsure(key.service)
	}
	return err
}

func (l *loadBalancers) updateResult(item *pb.LoadBalancerUpdate, err error) *pb.LoadBalancerUpdateResult {
	uid := item.GetService().GetRef().GetUid()
	if err == nil {
		return &pb.LoadBalancerUpdateResult{ServiceUid: uid, Outcome: pb.UpdateOutcome_UPDATE_OUTCOME_UPDATED}
	}
	out := &pb.LoadBalancerUpdateResult{ServiceUid: uid, Outcome: pb.UpdateOutcome_UPDATE_OUTCOME_NOT_UPDATED}
	if out.InProgress = inProgress(err); out.InProgress == nil {
		out.Error = fault.Item(l.mapped(err, uid))
	}
	return out
}

func (l *loadBalancers) DeleteLoadBalancer(ctx context.Context, request *pb.DeleteLoadBalancerRequest) (*pb.DeleteLoadBalancerResponse, error) {
	ref := request.GetService()
	waiting, done := withSpare(ctx)
	defer done()
	l.memory.leads(request.GetCluster(), request.GetFencing())
	wish := wishOf("delete", request, "")
	_, err := do(waiting, &l.balancerWorks, ref.GetUid(), wish, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, l.delete(ctx, request)
	})
	answer := &pb.DeleteLoadBalancerResponse{InProgress: inProgress(err)}
	if answer.InProgress == nil && err != nil {
		// Its finalizer waits for this, so it must be tried again.
		return nil, l.mappedForService(err, ref.GetUid(), pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR)
	}
	answer.Events = l.events.take(ref.GetUid())
	return answer, nil
}

func (l *loadBalancers) delete(ctx context.Context, request *pb.DeleteLoadBalancerRequest) error {
	ref := request.GetService()
	key := balancerKey{request.GetCluster().GetUid(), ref.GetUid()}
	if l.memory.elsewhere(key) {
		return nil
	}
	known, hint := l.memory.recall(key), request.GetLastKnown()
	if hint.GetRef().GetUid() != key.service {
		hint = nil
	}
	told := cmp.Or(hint, known.service, &pb.Service{Ref: ref})
	if len(told.GetIngress()) == 0 {
		// Nobody may have written it yet, and some find the balancer by it alone.
		told = withIngress(told, known.balancer.GetIngress())
	}
	mirror := l.mirrorOf(request.GetCluster())
	service, err := mirror.shown(ctx, told, mirror.formerService)
	if err != nil {
		return err
	}
	if len(service.Status.LoadBalancer.Ingress) == 0 {
		service.Status.LoadBalancer = statusOf(told.GetIngress())
	}
	l.memory.begins(key, everything)
	if err := l.deleteAs(ctx, request.GetCluster(), service); err != nil {
		return err
	}
	// A provider that tells kinds of balancers by annotations leaves one behind if an edit to another kind failed, or had to wait: what
	// still stands by the annotations that were applied goes, too. Not before: what is asked for last holds, such as that an address is
	// no longer kept.
	former := service.DeepCopy()
	former.Annotations = joined(joined(known.service.GetAnnotations(), hint.GetAnnotations()), service.Annotations)
	if len(former.Annotations) > len(service.Annotations) {
		left, err := l.look(ctx, l.clusterName(request.GetCluster()), former)
		switch {
		case errors.Is(err, cloudprovider.ImplementedElsewhere):
		case err != nil:
			return err
		case left.GetState() != pb.LoadBalancerState_LOAD_BALANCER_STATE_ABSENT:
			if err := l.deleteAs(ctx, request.GetCluster(), former); err != nil {
				return err
			}
		}
	}
	mirror.serviceGone(ref)
	l.memory.erase(key)
	return nil
}

func (l *loadBalancers) deleteAs(ctx context.Context, cluster *pb.ClusterRef, service *v1.Service) error {
	// The term may have ended during an earlier call.
	if err := context.Cause(ctx); err != nil {
		return err
	}
	err := l.parts.balancers.EnsureLoadBalancerDeleted(ctx, l.clusterName(cluster), service)
	if errors.Is(err, cloudprovider.ImplementedElsewhere) {
		return nil // Whoever serves the Service now has a finalizer of its own; ours must not stay for ever.
	}
	return of(err, service)
}

// joined returns the pairs of both; where they differ, those of now.
func joined(before, now map[string]string) map[string]string {
	all := copied(before)
	maps.Copy(all, now)
	return all
}

func (l *loadBalancers) ListLoadBalancers(_ context.Context, request *pb.ListLoadBalancersRequest) (*pb.ListLoadBalancersResponse, error) {
	items, next, err := sdk.Page(request, l.memory.all(request.GetCluster().GetUid()), func(one *pb.LoadBalancer) string {
		return one.GetService().GetUid()
	})
	if err != nil {
		return nil, err
	}
	return &pb.ListLoadBalancersResponse{LoadBalancers: items, NextPageToken: next, Unreachable: []*pb.UnreachableLocation{{
		Location: "before the present host",
		Error:    fault.Item(fault.UnsupportedFeature("load_balancers", "a bridged provider cannot list earlier balancers")),
	}}}, nil
}
