package main_test

import (
	"slices"
	"testing"

	"cloudprovider.ccm/bridged-aws/emulator"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

func TestANewNodeGetsIDTypeZoneAndAddresses(t *testing.T) {
	w := newWorld(t)
	machine, node := w.launch(emulator.Zones[1])

	answer := w.ask(node)[node.GetName()]

	found := answer.GetInstance()
	if answer.GetState() != pb.InstanceState_INSTANCE_STATE_RUNNING || found.GetProviderId() != machine.ProviderID() {
		t.Errorf("%v is not the running %s", answer, machine.ProviderID())
	}
	if found.GetInstanceType() != "t3.medium" || found.GetZone() != emulator.Zones[1] || found.GetRegion() != emulator.Region {
		t.Errorf("type, zone and region of %v", found)
	}
	internal := slices.ContainsFunc(found.GetAddresses(), func(address *pb.NodeAddress) bool {
		return address.GetType() == pb.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_IP && address.GetAddress() == machine.Address
	})
	if !internal || found.GetLabels()["topology.k8s.aws/zone-id"] == "" {
		t.Errorf("address and zone's id of %v", found)
	}
}

func TestStatesOfMachines(t *testing.T) {
	w := newWorld(t)
	_, running := w.initialized(emulator.Zones[0])
	stopping, stopped := w.initialized(emulator.Zones[0])
	ending, terminated := w.initialized(emulator.Zones[1])
	never := &pb.NodeRef{Name: "never", ProviderId: "aws:///us-east-1a/i-0123456789abcdef0"}
	unnamed := &pb.NodeRef{Name: "ip-10-0-9-9.ec2.internal"}
	foreign := &pb.NodeRef{Name: "foreign", ProviderId: "gce://project/zone/name"}
	must(0, w.cloud.Stop(w.ctx, stopping.ID))(t)
	must(0, w.cloud.Terminate(w.ctx, ending.ID))(t)

	twin := &pb.NodeRef{Name: "twin", ProviderId: running.GetProviderId()}
	answers := w.ask(running, twin, stopped, terminated, never, unnamed, foreign)

	for _, want := range []struct {
		node          *pb.NodeRef
		state         pb.InstanceState
		authoritative bool
	}{
		{running, pb.InstanceState_INSTANCE_STATE_RUNNING, true},
		{twin, pb.InstanceState_INSTANCE_STATE_RUNNING, true},
		{stopped, pb.InstanceState_INSTANCE_STATE_STOPPED, true},
		{terminated, pb.InstanceState_INSTANCE_STATE_ABSENT, true},
		{never, pb.InstanceState_INSTANCE_STATE_ABSENT, true},
		{unnamed, pb.InstanceState_INSTANCE_STATE_ABSENT, false},
		{foreign, pb.InstanceState_INSTANCE_STATE_NOT_OWNED, false},
	} {
		answer := answers[want.node.GetName()]
		if answer.GetState() != want.state || answer.GetAuthoritative() != want.authoritative {
			t.Errorf("%v: got %v, want %v", want.node, answer, want.state)
		}
	}
}
