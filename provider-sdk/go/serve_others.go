package sdk

import (
	"context"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"cloudprovider.ccm/sdk/internal/checks"
)

// Methods that are handed on as they are come from the embedded interface of the team.
type (
	routesServer struct {
		pb.UnsafeRoutesServer
		Routes
	}
	volumesServer struct {
		pb.UnsafeVolumesServer
		Volumes
	}
	clustersServer struct {
		pb.UnsafeClustersServer
		Clusters
	}
)

// loadBalancersServer serves LoadBalancers, and remembers the revisions of the wanted state.
type loadBalancersServer struct {
	pb.UnsafeLoadBalancersServer
	revisions *checks.Revisions
	LoadBalancers
}

func (s *loadBalancersServer) EnsureLoadBalancer(ctx context.Context, request *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error) {
	uid := request.GetService().GetRef().GetUid()
	if err := s.revisions.Accept(request.GetCluster().GetUid(), uid, request.GetRevision()); err != nil {
		return nil, err
	}
	return s.LoadBalancers.EnsureLoadBalancer(ctx, request)
}

func (s *loadBalancersServer) DeleteLoadBalancer(ctx context.Context, request *pb.DeleteLoadBalancerRequest) (*pb.DeleteLoadBalancerResponse, error) {
	uid := request.GetService().GetUid()
	if err := s.revisions.Accept(request.GetCluster().GetUid(), uid, request.GetRevision()); err != nil {
		return nil, err
	}
	return s.LoadBalancers.DeleteLoadBalancer(ctx, request)
}

func (s *loadBalancersServer) BatchUpdateLoadBalancers(ctx context.Context, request *pb.BatchUpdateLoadBalancersRequest) (*pb.BatchUpdateLoadBalancersResponse, error) {
	stale := s.takeStale(request)
	if len(request.GetItems()) == 0 {
		return &pb.BatchUpdateLoadBalancersResponse{Results: stale}, nil
	}
	answer, err := s.LoadBalancers.BatchUpdateLoadBalancers(ctx, request)
	if err == nil && answer != nil {
		answer.Results = append(answer.Results, stale...)
	}
	return answer, err
}

// takeStale takes the overtaken items out of a batch, and answers them.
func (s *loadBalancersServer) takeStale(request *pb.BatchUpdateLoadBalancersRequest) (stale []*pb.LoadBalancerUpdateResult) {
	var fresh []*pb.LoadBalancerUpdate
	for _, item := range request.GetItems() {
		uid := item.GetService().GetRef().GetUid()
		err := s.revisions.Accept(request.GetCluster().GetUid(), uid, item.GetRevision())
		if err == nil {
			fresh = append(fresh, item)
			continue
		}
		stale = append(stale, &pb.LoadBalancerUpdateResult{
			ServiceUid: uid, Outcome: pb.UpdateOutcome_UPDATE_OUTCOME_NOT_UPDATED, Error: fault.Item(err),
		})
	}
	request.Items = fresh
	return stale
}
