package cloud

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/fake"
)

// changed loads the stored routes into upstream's fake, changes them, and stores the result.
func (c *Cloud) changed(work func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.outage(); err != nil {
		return err
	}
	file := filepath.Join(c.folder, "routes", "all.json")
	c.RouteMap = map[string]*fake.Route{}
	if text, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(text, &c.RouteMap); err != nil {
			return err
		}
	}
	// Upstream's fake would keep an error for ever.
	defer func() { c.Err = nil }()
	if err := work(); err != nil {
		return err
	}
	text, err := json.Marshal(c.RouteMap)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+"~", text, 0o600); err != nil {
		return err
	}
	return os.Rename(file+"~", file)
}

func (c *Cloud) ListRoutes(ctx context.Context, cluster string) (all []*cloudprovider.Route, err error) {
	c.called("ListRoutes")
	err = c.changed(func() error {
		all, err = c.Cloud.ListRoutes(ctx, cluster)
		return err
	})
	for _, route := range all {
		if found, err := c.machine(named(route)); err == nil && found == nil {
			route.Blackhole = true
		}
	}
	return all, err
}

func named(route *cloudprovider.Route) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: string(route.TargetNode)}}
}

func (c *Cloud) CreateRoute(ctx context.Context, cluster, hint string, route *cloudprovider.Route) error {
	c.called("CreateRoute")
	switch found, err := c.machine(named(route)); {
	case err != nil:
		return err
	case found == nil:
		return cloudprovider.InstanceNotFound
	}
	return c.changed(func() error { return c.Cloud.CreateRoute(ctx, cluster, hint, route) })
}

func (c *Cloud) DeleteRoute(ctx context.Context, cluster string, route *cloudprovider.Route) error {
	c.called("DeleteRoute")
	return c.changed(func() error { return c.Cloud.DeleteRoute(ctx, cluster, route) })
}
