package cloud

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

func (c *Cloud) Clusters() (cloudprovider.Clusters, bool) { return c, true }

func (c *Cloud) ListClusters(context.Context) (names []string, err error) {
	if err := c.outage(); err != nil {
		return nil, err
	}
	files, err := os.ReadDir(filepath.Join(c.folder, "clusters"))
	for _, file := range files {
		names = append(names, file.Name())
	}
	return names, err
}

// Master returns an empty address for an unknown cluster, as upstream's fake does for an empty name.
func (c *Cloud) Master(_ context.Context, name string) (string, error) {
	return c.line("clusters", name)
}

// GetLabelsForVolume knows the disks of one kind.
func (c *Cloud) GetLabelsForVolume(_ context.Context, volume *v1.PersistentVolume) (map[string]string, error) {
	disk := volume.Spec.GCEPersistentDisk
	if disk == nil {
		return nil, nil
	}
	zone, err := c.line("disks", disk.PDName)
	if err == nil && zone == "" {
		err = cloudprovider.DiskNotFound
	}
	return map[string]string{v1.LabelTopologyZone: zone}, err
}

// line reads a file of one line; empty if the file does not exist.
func (c *Cloud) line(part, name string) (string, error) {
	if err := c.outage(); err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(c.folder, part, filepath.Base(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}
