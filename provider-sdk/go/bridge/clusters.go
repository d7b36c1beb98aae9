package bridge

import (
	"context"
	"net"
	"strconv"

	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// clusters serves Clusters.
type clusters struct{ *bridge }

func (c *clusters) ListClusters(ctx context.Context, request *pb.ListClustersRequest) (*pb.ListClustersResponse, error) {
	if _, err := sdk.OpenPageToken(request); err != nil {
		return nil, err
	}
	names, err := one(ctx, c.bridge, "ListClusters", c.parts.clusters.ListClusters)
	if err != nil {
		return nil, c.mapped(err, "ListClusters")
	}
	names, next, err := sdk.Page(request, names, func(name string) string { return name })
	return &pb.ListClustersResponse{Names: names, NextPageToken: next}, err
}

func (c *clusters) GetControlPlaneEndpoint(ctx context.Context, request *pb.GetControlPlaneEndpointRequest) (*pb.GetControlPlaneEndpointResponse, error) {
	address, err := one(ctx, c.bridge, "Master "+request.GetClusterName(), func(ctx context.Context) (string, error) {
		return c.parts.clusters.Master(ctx, request.GetClusterName())
	})
	if err != nil {
		return nil, c.mapped(err, "Master")
	}
	if address == "" {
		return nil, fault.ClusterNotFound(request.GetClusterName())
	}
	if host, text, err := net.SplitHostPort(address); err == nil {
		if port, err := strconv.ParseUint(text, 10, 16); err == nil {
			return &pb.GetControlPlaneEndpointResponse{Host: host, Port: int32(port)}, nil
		}
	}
	return &pb.GetControlPlaneEndpointResponse{Host: address}, nil
}
