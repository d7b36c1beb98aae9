package bridge

import (
	"context"
	"errors"
	"path"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
)

// volumes serves Volumes through the provider's PVLabeler.
type volumes struct {
	*bridge
	labeler cloudprovider.PVLabeler
}

func (v *volumes) BatchGetVolumeLabels(ctx context.Context, request *pb.BatchGetVolumeLabelsRequest) (*pb.BatchGetVolumeLabelsResponse, error) {
	ask := func(ctx context.Context, query *pb.VolumeQuery) *pb.VolumeResult {
		var result *pb.VolumeResult
		err := guarded(func() (err error) {
			result, err = v.ask(ctx, query)
			return err
		})
		if err != nil {
			return &pb.VolumeResult{Key: query.GetKey(), Error: fault.Item(v.mapped(err, query.GetName()))}
		}
		return result
	}
	late := func(query *pb.VolumeQuery, _ bool) *pb.VolumeResult {
		return &pb.VolumeResult{Key: query.GetKey(), Error: fault.Item(tooLate())}
	}
	name := func(query *pb.VolumeQuery) string { return "volume " + query.GetPlugin() + " " + query.GetVolumeId() }
	return &pb.BatchGetVolumeLabelsResponse{Results: eachInTime(ctx, v.bridge, request.GetQueries(), name, ask, late)}, nil
}

func (v *volumes) ask(ctx context.Context, query *pb.VolumeQuery) (*pb.VolumeResult, error) {
	volume, known := volumeOf(query)
	if !known {
		return &pb.VolumeResult{
			Key: query.GetKey(), State: pb.VolumeState_VOLUME_STATE_NOT_OWNED,
			Error: fault.Item(fault.UnsupportedFeature("plugin", "the bridge does not know this kind of volume")),
		}, nil
	}
	labels, err := v.labeler.GetLabelsForVolume(ctx, volume)
	switch {
	case errors.Is(err, cloudprovider.DiskNotFound):
		return &pb.VolumeResult{
			Key: query.GetKey(), State: pb.VolumeState_VOLUME_STATE_ABSENT, Error: fault.Item(fault.VolumeNotFound(query.GetName())),
		}, nil
	case err != nil:
		return nil, of(err, volume)
	case labels == nil:
		// Providers return this for a volume of another cloud.
		return &pb.VolumeResult{Key: query.GetKey(), State: pb.VolumeState_VOLUME_STATE_NOT_OWNED}, nil
	}
	return &pb.VolumeResult{Key: query.GetKey(), State: pb.VolumeState_VOLUME_STATE_PRESENT, Labels: labels}, nil
}

// volumeOf builds the volume that a provider reads; false for a plugin that no provider labels.
func volumeOf(query *pb.VolumeQuery) (*v1.PersistentVolume, bool) {
	out := &v1.PersistentVolume{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{Name: query.GetName(), UID: types.UID(query.GetUid()), Labels: copied(query.GetLabels())},
	}
	source, id := &out.Spec.PersistentVolumeSource, query.GetVolumeId()
	switch query.GetPlugin() {
	case "kubernetes.io/aws-ebs":
		source.AWSElasticBlockStore = &v1.AWSElasticBlockStoreVolumeSource{VolumeID: id}
	case "kubernetes.io/gce-pd":
		source.GCEPersistentDisk = &v1.GCEPersistentDiskVolumeSource{PDName: id}
	case "kubernetes.io/cinder":
		source.Cinder = &v1.CinderPersistentVolumeSource{VolumeID: id}
	case "kubernetes.io/vsphere-volume":
		source.VsphereVolume = &v1.VsphereVirtualDiskVolumeSource{VolumePath: id}
	case "kubernetes.io/azure-disk":
		source.AzureDisk = &v1.AzureDiskVolumeSource{DataDiskURI: id, DiskName: path.Base(id)}
	default:
		return nil, false
	}
	return out, true
}
