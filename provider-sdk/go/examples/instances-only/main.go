// A complete provider that serves only instances.
package main

import (
	"context"
	"strings"

	"cloudprovider.ccm/sdk"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

type server struct {
	state   pb.InstanceState
	address string
}

// cloud is a list of servers by id here; in your provider, a client of your cloud's API.
type cloud map[string]server

func (c cloud) BatchGetInstances(_ context.Context, request *pb.BatchGetInstancesRequest) (*pb.BatchGetInstancesResponse, error) {
	answer := &pb.BatchGetInstancesResponse{}
	for _, query := range request.GetQueries() {
		answer.Results = append(answer.Results, c.lookUp(query))
	}
	return answer, nil
}

func (c cloud) lookUp(query *pb.InstanceQuery) *pb.InstanceResult {
	key, node := query.GetKey(), query.GetNode()
	id := node.GetName() // A new node has no provider ID yet.
	if node.GetProviderId() != "" {
		var ours bool
		if id, ours = strings.CutPrefix(node.GetProviderId(), "example://"); !ours || id == "" {
			return sdk.NotOwned(key)
		}
	}
	found, there := c[id]
	if !there {
		return sdk.Absent(query)
	}
	return sdk.Found(key, found.state, &pb.Instance{
		ProviderId:   "example://" + id,
		InstanceType: "small",
		Zone:         "eu-1",
		Addresses: []*pb.NodeAddress{
			{Type: pb.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_IP, Address: found.address},
		},
	})
}

func main() {
	servers := cloud{
		"node-1": {pb.InstanceState_INSTANCE_STATE_RUNNING, "10.0.0.1"},
		"node-2": {pb.InstanceState_INSTANCE_STATE_STOPPED, "10.0.0.2"},
	}
	sdk.Main(func(context.Context) (*sdk.Provider, error) {
		return sdk.New("example", sdk.WithProviderIDPrefix("example://"), sdk.WithInstances(servers))
	})
}
