package habits

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/retry"
	"k8s.io/cloud-provider/api"
	"k8s.io/cloud-provider/service/helpers"
)

// RetryAfter is the delay that Retries asks for.
const RetryAfter = 5 * time.Second

func (c *Cloud) EnsureLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (status *v1.LoadBalancerStatus, err error) {
	c.saw(service)
	if c.has(PatchesLate) {
		defer func() {
			err = errors.Join(err, c.patch(service, func(after *v1.Service) { after.Annotations[AddressKey] = "192.0.2.1" }))
		}()
	}
	c.hang(service.Name)
	c.panicOnce(service.Name)
	if err := errors.Join(c.readConfigMap(ctx), c.lock(ctx), c.lookUp(nodes), c.finalize(service), c.identify(service), c.tell(ctx, service)); err != nil {
		return nil, err
	}
	if c.has(Retries) && c.first("retry-"+string(service.UID)) {
		return nil, api.NewRetryError("the balancer is not active yet", RetryAfter)
	}
	if status, err = c.Cloud.EnsureLoadBalancer(ctx, cluster, service, nodes); err != nil {
		return nil, err
	}
	return status, errors.Join(c.keep("ports", service.Name, portsOf(service)), c.share(service, true))
}

func (c *Cloud) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) error {
	c.saw(service)
	c.hang(service.Name)
	if err := errors.Join(c.lookUp(nodes), c.share(service, true)); err != nil {
		return err
	}
	return c.Cloud.UpdateLoadBalancer(ctx, cluster, service, nodes)
}

func (c *Cloud) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	c.saw(service)
	c.hang(service.Name)
	if c.has(OwnFinalizer) && !slices.Contains(service.Finalizers, Finalizer) {
		return nil // Without its finalizer it takes the balancer for somebody else's.
	}
	err := errors.Join(c.readConfigMap(ctx), c.lock(ctx), c.share(service, false), c.drop("ids", service.Annotations[IDKey]), c.drop("ports", service.Name))
	if err != nil {
		return err
	}
	if err := c.Cloud.EnsureLoadBalancerDeleted(ctx, cluster, service); err != nil {
		return err
	}
	return c.unfinalize(ctx, service)
}

func (c *Cloud) saw(service *v1.Service) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = service.DeepCopy()
}

func portsOf(service *v1.Service) string {
	var out strings.Builder
	for _, port := range service.Spec.Ports {
		fmt.Fprintf(&out, "%s %d\n", port.Name, port.Port)
	}
	return out.String()
}

func (c *Cloud) keep(part, name, text string) error {
	path := filepath.Join(c.folder, part, filepath.Base(name))
	if err := os.WriteFile(path+"~", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+"~", path)
}

func (c *Cloud) drop(part, name string) error {
	if name == "" {
		return nil
	}
	err := os.Remove(filepath.Join(c.folder, part, filepath.Base(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// patch writes a Service in the way of upstream's helpers.
func (c *Cloud) patch(service *v1.Service, change func(*v1.Service)) error {
	after := service.DeepCopy()
	if after.Annotations == nil {
		after.Annotations = map[string]string{}
	}
	change(after)
	_, err := helpers.PatchService(c.client.CoreV1(), service, after)
	return err
}

func (c *Cloud) readConfigMap(ctx context.Context) error {
	if !c.has(ReadsConfigMap) {
		return nil
	}
	maps := c.client.CoreV1().ConfigMaps(Namespace)
	_, err := maps.Get(ctx, Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		made := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: Name}, Data: map[string]string{"uid": "1"}}
		_, err = maps.Create(ctx, made, metav1.CreateOptions{})
	}
	return err
}

func (c *Cloud) lock(ctx context.Context) error {
	if !c.has(LocksLease) {
		return nil
	}
	leases := c.client.CoordinationV1().Leases(Namespace)
	lease, err := leases.Get(ctx, Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: Name}}, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	lease.Spec.HolderIdentity = new("difficult")
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

func (c *Cloud) lookUp(nodes []*v1.Node) (err error) {
	if !c.has(WantsNodeLister) {
		return nil
	}
	for _, node := range nodes {
		_, unknown := c.nodes.Get(node.Name)
		err = errors.Join(err, unknown)
	}
	return err
}

func (c *Cloud) finalize(service *v1.Service) error {
	if !c.has(OwnFinalizer) || slices.Contains(service.Finalizers, Finalizer) {
		return nil
	}
	return c.patch(service, func(after *v1.Service) { after.Finalizers = append(after.Finalizers, Finalizer) })
}

func (c *Cloud) unfinalize(ctx context.Context, service *v1.Service) error {
	if !c.has(OwnFinalizer) {
		return nil
	}
	services := c.client.CoreV1().Services(service.Namespace)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := services.Get(ctx, service.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Finalizers = slices.DeleteFunc(now.Finalizers, func(name string) bool { return name == Finalizer })
		_, err = services.Update(ctx, now, metav1.UpdateOptions{})
		return err
	})
}

// identify creates a balancer and writes its ID on the Service: users choose its name, so only the ID finds it again.
func (c *Cloud) identify(service *v1.Service) error {
	if !c.has(PatchesID) || service.Annotations[IDKey] != "" {
		return nil
	}
	id := "lb-" + strings.ToLower(rand.Text()[:8])
	if err := c.keep("ids", id, service.Namespace+"/"+service.Name); err != nil {
		return err
	}
	return c.patch(service, func(after *v1.Service) { after.Annotations[IDKey] = id })
}

// share keeps the rules of the shared address for this Service, if it stays, and for all others that have the address.
func (c *Cloud) share(service *v1.Service, stays bool) error {
	if !c.has(ListsServices) {
		return nil
	}
	all, err := c.services.List(labels.Everything())
	if err != nil {
		return err
	}
	wanted := map[string]bool{service.Name: stays}
	for _, one := range all {
		if ingress := one.Status.LoadBalancer.Ingress; one.UID != service.UID && len(ingress) > 0 && ingress[0].IP == "192.0.2.1" {
			wanted[one.Name] = true
		}
	}
	for _, rule := range c.names("rules") {
		if !wanted[rule] {
			err = errors.Join(err, c.drop("rules", rule))
		}
	}
	if stays {
		err = errors.Join(err, c.keep("rules", service.Name, service.Namespace))
	}
	return err
}

func (c *Cloud) tell(ctx context.Context, service *v1.Service) error {
	if !c.has(TellsEvents) {
		return nil
	}
	event := &v1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: service.Name + ".", Namespace: service.Namespace},
		InvolvedObject: v1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: service.Namespace, Name: service.Name, UID: service.UID},
		Type:           v1.EventTypeWarning, Reason: "Making", Message: "making it, request id: " + strings.ToLower(rand.Text()) + "0", Source: v1.EventSource{Component: "difficult"},
	}
	_, err := c.client.CoreV1().Events(service.Namespace).Create(ctx, event, metav1.CreateOptions{})
	return err
}
