package bridge_test

import (
	"context"
	"slices"
	"testing"

	"cloudprovider.ccm/sdk/bridge"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc/codes"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"
)

const publicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJr3m0vMmHqzVUV9jpZT0zfD2sC0kqcRkqGkqcRkqGk someone"

// keyed adds SSH keys.
type keyed struct {
	*cloud
	err  error
	keys []string
}

func (k *keyed) Instances() (cloudprovider.Instances, bool) { return k, true }

func (k *keyed) AddSSHKeyToAllInstances(_ context.Context, user string, key []byte) error {
	k.keys = append(k.keys, user+" "+string(key))
	return k.err
}

func TestKeysAreSpreadWhereTheVendorSaysSo(t *testing.T) {
	cloud := &keyed{cloud: newer()}
	conn := serve(t, cloud, bridge.WithSSHKeys())
	capabilities, err := pb.NewCloudProviderClient(conn).GetCapabilities(soon(t), &pb.GetCapabilitiesRequest{})
	if err != nil || !slices.Contains(capabilities.GetCapabilities(), pb.Capability_CAPABILITY_SSH_KEYS) {
		t.Fatal(capabilities, err)
	}
	add := func(key string) (*pb.AddSshKeyToAllInstancesResponse, error) {
		return pb.NewInstancesClient(conn).AddSshKeyToAllInstances(soon(t), &pb.AddSshKeyToAllInstancesRequest{
			Cluster: clusterRef(), Fencing: &pb.Fencing{}, User: "core", PublicKey: key,
		})
	}
	if _, err := add(publicKey); err != nil || !slices.Equal(cloud.keys, []string{"core " + publicKey}) {
		t.Error(cloud.keys, err)
	}
	cloud.err = api.NewRetryError("soon", 1)
	if answer, err := add(publicKey); err != nil || answer.GetInProgress() == nil {
		t.Error(answer, err)
	}
	for _, bad := range []string{"ssh-rsa", "ssh-rsa !", "ssh-rsa AAAA", publicKey[:20], "ssh-rsa" + publicKey[11:], publicKey + "\n" + publicKey} {
		_, err := add(bad)
		expect(t, err, codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_INVALID_SSH_KEY)
	}
}

func TestKeysAreNotAdvertisedOtherwise(t *testing.T) {
	conn := serve(t, &keyed{cloud: newer()})
	capabilities, err := pb.NewCloudProviderClient(conn).GetCapabilities(soon(t), &pb.GetCapabilitiesRequest{})
	if err != nil || slices.Contains(capabilities.GetCapabilities(), pb.Capability_CAPABILITY_SSH_KEYS) {
		t.Error(capabilities, err)
	}
}
