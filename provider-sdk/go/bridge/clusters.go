package bridge

import (
	"context"
	"net"
	"slices"
	"strconv"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	cloudprovider "k8s.io/cloud-provider"
)

// clusters serves Clusters.
type clusters struct {
	clusters cloudprovider.Clusters
	pages    pages[string]
}

func newClusters(of cloudprovider.Clusters) *clusters {
	return &clusters{clusters: of, pages: pages[string]{now: time.Now}}
}

func (c *clusters) ListClusters(ctx context.Context, request *pb.ListClustersRequest) (*pb.ListClustersResponse, error) {
	names, next, err := c.pages.page(request.GetPageToken(), request.GetPageSize(), func() (names []string, err error) {
		err = guarded(func() error {
			names, err = c.clusters.ListClusters(ctx)
			return err
		})
		names = slices.Clone(names)
		slices.Sort(names)
		return names, mapped(err, "ListClusters")
	})
	if err != nil {
		return nil, err
	}
	return &pb.ListClustersResponse{Names: names, NextPageToken: next}, nil
}

func (c *clusters) GetControlPlaneEndpoint(ctx context.Context, request *pb.GetControlPlaneEndpointRequest) (*pb.GetControlPlaneEndpointResponse, error) {
	address := ""
	err := guarded(func() (err error) {
		address, err = c.clusters.Master(ctx, request.GetClusterName())
		return err
	})
	if err != nil {
		return nil, mapped(err, "Master")
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
