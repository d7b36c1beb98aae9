package bridge_test

import (
	"errors"
	"testing"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc/codes"
)

func TestClustersAreListedAndFound(t *testing.T) {
	cloud := newer()
	cloud.ClusterList = []string{"b", "a"}
	client := pb.NewClustersClient(serve(t, cloud))
	page, err := client.ListClusters(soon(t), &pb.ListClustersRequest{Cluster: clusterRef(), PageSize: 1})
	if err != nil || page.GetNames()[0] != "a" {
		t.Fatal(page, err)
	}
	next := &pb.ListClustersRequest{Cluster: clusterRef(), PageSize: 1, PageToken: page.GetNextPageToken()}
	if page, err = client.ListClusters(soon(t), next); err != nil || page.GetNames()[0] != "b" || page.GetNextPageToken() != "" {
		t.Error(page, err)
	}
	ask := &pb.GetControlPlaneEndpointRequest{Cluster: clusterRef(), ClusterName: "a"}
	for master, want := range map[string]*pb.GetControlPlaneEndpointResponse{
		"192.0.2.1": {Host: "192.0.2.1"}, "cp.example:6443": {Host: "cp.example", Port: 6443}, "2001:db8::1": {Host: "2001:db8::1"},
	} {
		cloud.MasterName = master
		got, err := client.GetControlPlaneEndpoint(soon(t), ask)
		if err != nil || got.GetHost() != want.GetHost() || got.GetPort() != want.GetPort() {
			t.Errorf("%q became %v %v", master, got, err)
		}
	}
	cloud.MasterName = ""
	_, err = client.GetControlPlaneEndpoint(soon(t), ask)
	expect(t, err, codes.NotFound, pb.ErrorReason_ERROR_REASON_CLUSTER_NOT_FOUND)
	cloud.Err = errors.New("500")
	_, err = client.ListClusters(soon(t), &pb.ListClustersRequest{Cluster: clusterRef()})
	expect(t, err, codes.Internal, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR)
}
