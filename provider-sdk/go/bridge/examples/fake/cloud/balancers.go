package cloud

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/cloud-provider/api"
)

func (c *Cloud) balancer(ctx context.Context, cluster string, service *v1.Service) string {
	return filepath.Join(c.folder, "balancers", filepath.Base(c.GetLoadBalancerName(ctx, cluster, service)))
}

// write stores a balancer atomically.
func (c *Cloud) write(path string, service *v1.Service, nodes []*v1.Node) error {
	lines := []string{service.Namespace + "/" + service.Name}
	for _, node := range nodes {
		lines = append(lines, node.Name)
	}
	if err := os.WriteFile(path+"~", []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(path+"~", path)
}

func (c *Cloud) GetLoadBalancer(ctx context.Context, cluster string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	c.called("GetLoadBalancer")
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.outage(); err != nil {
		return nil, false, err
	}
	_, err := os.Stat(c.balancer(ctx, cluster, service))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	status, _, err := c.Cloud.GetLoadBalancer(ctx, cluster, service)
	status = c.reached(c.balancer(ctx, cluster, service), status)
	for _, port := range service.Spec.Ports {
		one := &status.Ingress[0]
		one.Ports = append(one.Ports, v1.PortStatus{Port: port.Port, Protocol: port.Protocol})
	}
	return status, true, err
}

func (c *Cloud) EnsureLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	c.called("EnsureLoadBalancer")
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.outage(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(c.folder, "full")); err == nil {
		return nil, errors.New("the quota of load balancers is exhausted")
	}
	if err := c.built(c.balancer(ctx, cluster, service)); err != nil {
		return nil, err
	}
	if err := c.write(c.balancer(ctx, cluster, service), service, nodes); err != nil {
		return nil, err
	}
	made := asked(service)
	if err := c.attach(made, nodes); err != nil {
		return nil, err
	}
	if err := c.build(c.balancer(ctx, cluster, service), made); err != nil {
		return nil, err
	}
	status, err := c.Cloud.EnsureLoadBalancer(ctx, cluster, service, nodes)
	return c.reached(c.balancer(ctx, cluster, service), status), err
}

// reached gives a balancer an address of each of its families: upstream's fake has only one, of IPv4.
func (c *Cloud) reached(balancer string, status *v1.LoadBalancerStatus) *v1.LoadBalancerStatus {
	made, err := c.stands(balancer)
	if err != nil || status == nil {
		return status
	}
	reached := &v1.LoadBalancerStatus{}
	for _, family := range made.Families {
		if family == v1.IPv6Protocol {
			reached.Ingress = append(reached.Ingress, v1.LoadBalancerIngress{IP: "2001:db8::1"})
		} else {
			reached.Ingress = append(reached.Ingress, status.Ingress...)
		}
	}
	if made.Address != "" {
		reached.Ingress[0].IP = made.Address
	}
	return reached
}

// built waits as providers do, with an error that says when to retry: while there is a file "slow", a new balancer takes two
// seconds.
func (c *Cloud) built(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(c.folder, "slow")); err != nil {
		return nil
	}
	if c.begun[path].IsZero() {
		c.begun[path] = time.Now()
	}
	if time.Since(c.begun[path]) < 2*time.Second {
		return api.NewRetryError("the balancer is being built", time.Second)
	}
	delete(c.begun, path)
	return nil
}

func (c *Cloud) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) error {
	c.called("UpdateLoadBalancer")
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.outage(); err != nil {
		return err
	}
	if err := c.write(c.balancer(ctx, cluster, service), service, nodes); err != nil {
		return err
	}
	made, err := c.stands(c.balancer(ctx, cluster, service))
	if err != nil {
		return err
	}
	if err := c.attach(made, nodes); err != nil {
		return err
	}
	if err := c.build(c.balancer(ctx, cluster, service), made); err != nil {
		return err
	}
	return c.Cloud.UpdateLoadBalancer(ctx, cluster, service, nodes)
}

func (c *Cloud) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	c.called("EnsureLoadBalancerDeleted")
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.outage(); err != nil {
		return err
	}
	if err := os.Remove(c.balancer(ctx, cluster, service)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Remove(c.standingAt(c.balancer(ctx, cluster, service))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return c.Cloud.EnsureLoadBalancerDeleted(ctx, cluster, service)
}
