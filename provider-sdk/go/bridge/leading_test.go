package bridge_test

import (
	"testing"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
)

func lead(t *testing.T, conn *grpc.ClientConn, leader *pb.Fencing, validFor *durationpb.Duration) {
	t.Helper()
	request := &pb.LeadRequest{Cluster: clusterRef(), Fencing: leader, ValidFor: validFor}
	if _, err := pb.NewCloudProviderClient(conn).Lead(soon(t), request); err != nil {
		t.Fatal(err)
	}
}
