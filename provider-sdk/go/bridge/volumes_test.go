package bridge_test

import (
	"context"
	"errors"
	"testing"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// labeler labels volumes of one kind, as the in-tree providers did.
type labeler struct{ *cloud }

func (l labeler) GetLabelsForVolume(_ context.Context, volume *v1.PersistentVolume) (map[string]string, error) {
	source := volume.Spec.AWSElasticBlockStore
	if source == nil {
		return nil, nil
	}
	switch source.VolumeID {
	case "vol-1":
		return map[string]string{"zone": volume.Labels["hint"]}, nil
	case "vol-2":
		return nil, cloudprovider.DiskNotFound
	case "vol-3":
		panic("vol-3")
	}
	return nil, errors.New("throttled")
}

func TestVolumesAreLabelled(t *testing.T) {
	request := &pb.BatchGetVolumeLabelsRequest{Cluster: clusterRef()}
	rows := []struct {
		plugin, id string
		state      pb.VolumeState
		reason     pb.ErrorReason
	}{
		{"kubernetes.io/aws-ebs", "vol-1", pb.VolumeState_VOLUME_STATE_PRESENT, 0},
		{"kubernetes.io/aws-ebs", "vol-2", pb.VolumeState_VOLUME_STATE_ABSENT, pb.ErrorReason_ERROR_REASON_VOLUME_NOT_FOUND},
		{"kubernetes.io/aws-ebs", "vol-3", pb.VolumeState_VOLUME_STATE_UNSPECIFIED, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR},
		{"kubernetes.io/aws-ebs", "vol-4", pb.VolumeState_VOLUME_STATE_UNSPECIFIED, pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR},
		{"kubernetes.io/gce-pd", "disk", pb.VolumeState_VOLUME_STATE_NOT_OWNED, 0},
		{"kubernetes.io/rbd", "disk", pb.VolumeState_VOLUME_STATE_NOT_OWNED, pb.ErrorReason_ERROR_REASON_UNSUPPORTED_FEATURE},
	}
	for _, row := range rows {
		request.Queries = append(request.Queries, &pb.VolumeQuery{
			Key: row.plugin + row.id, Name: row.id, Plugin: row.plugin, VolumeId: row.id, Labels: map[string]string{"hint": "eu-1"},
		})
	}
	answer, err := pb.NewVolumesClient(serve(t, labeler{newer()})).BatchGetVolumeLabels(soon(t), request)
	if err != nil {
		t.Fatal(err)
	}
	for at, row := range rows {
		got := answer.GetResults()[at]
		if got.GetKey() != row.plugin+row.id || got.GetState() != row.state || got.GetError().GetReason() != row.reason {
			t.Errorf("%s %s: %v", row.plugin, row.id, got)
		}
	}
	if labels := answer.GetResults()[0].GetLabels(); labels["zone"] != "eu-1" {
		t.Error(labels)
	}
}
