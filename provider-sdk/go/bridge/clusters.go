package bridge

import (
	"context"
	"net"
	"slices"
	"strconv"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// clusters serves Clusters.
type clusters struct {
	*bridge
	pages pages[string]
}

func newClusters(b *bridge) *clusters {
	return &clusters{bridge: b, pages: pages[string]{now: time.Now}}
}

func (c *clusters) ListClusters(ctx context.Context, request *pb.ListClustersRequest) (*pb.ListClustersResponse, error) {
	names, next, err := c.pages.page(request.GetCluster(), request.GetPageToken(), request.GetPageSize(), func() ([]string, error) {
		names, err := one(ctx, c.bridge, "ListClusters", c.parts.clusters.ListClusters)
		names = slices.Clone(names)
		slices.Sort(names)
		return names, c.mapped(err, "ListClusters")
	})
	if err != nil {
		return nil, err
	}
	return &pb.ListClustersResponse{Names: names, NextPageToken: next}, nil
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
