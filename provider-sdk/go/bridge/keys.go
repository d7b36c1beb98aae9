package bridge

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"strings"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// WithSSHKeys serves AddSshKeyToAllInstances through the provider's Instances. It is off by default, since most
// providers have the method but return NotImplemented, and an advertised capability must work.
func WithSSHKeys() Option {
	return func(b *bridge) { b.sshKeys = true }
}

// instancesWithKeys also adds SSH keys.
type instancesWithKeys struct{ *instances }

func (i *instancesWithKeys) AddSshKeyToAllInstances(ctx context.Context, request *pb.AddSshKeyToAllInstancesRequest) (*pb.AddSshKeyToAllInstancesResponse, error) {
	if !isPublicKey(request.GetPublicKey()) {
		return nil, fault.InvalidSSHKey("the key is not one line in OpenSSH format: algorithm, space, base64")
	}
	err := guarded(func() error {
		return i.parts.keys.AddSSHKeyToAllInstances(ctx, request.GetUser(), []byte(request.GetPublicKey()))
	})
	if progress := inProgress(err); progress != nil {
		return &pb.AddSshKeyToAllInstancesResponse{InProgress: progress}, nil
	}
	if err != nil {
		return nil, i.mapped(err, "AddSSHKeyToAllInstances")
	}
	return &pb.AddSshKeyToAllInstancesResponse{}, nil
}

// isPublicKey reports whether a text is a public key in OpenSSH format: the blob starts with the algorithm that
// precedes it.
func isPublicKey(text string) bool {
	words := strings.Fields(text)
	if len(words) < 2 || strings.ContainsAny(strings.TrimRight(text, "\r\n"), "\r\n") {
		return false
	}
	blob, err := base64.StdEncoding.DecodeString(words[1])
	if err != nil || len(blob) < 4 {
		return false
	}
	size := uint64(binary.BigEndian.Uint32(blob))
	return size <= uint64(len(blob)-4) && string(blob[4:4+size]) == words[0]
}
