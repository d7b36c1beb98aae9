package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/retry"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"
	"k8s.io/cloud-provider/service/helpers"
)

// Habits of published providers, each named with one that has it; the difficult provider has those that a test gives it.
const (
	// patchesLate: openstack patches annotations in a defer, and an error of that is an error of the Ensure.
	patchesLate = "patches annotations late"
	// patchesID: digitalocean writes the balancer's ID on the Service, and finds it by that from then on.
	patchesID = "patches an ID"
	// ownFinalizer: gce adds a finalizer, and removes nothing of a Service that does not carry it.
	ownFinalizer = "has a finalizer of its own"
	// readsConfigMaps: gce keeps its cluster's ID in a ConfigMap, vsphere its credentials in a Secret, azure a lock in a Lease.
	readsConfigMaps = "reads ConfigMaps"
	// listsServices: azure lists Services to find out who shares an address.
	listsServices = "lists all Services"
	// informsOfSecrets: vsphere wants an informer of Secrets.
	informsOfSecrets = "has an informer of Secrets"
	// retries: digitalocean answers RetryError until the balancer is active.
	retries = "answers RetryError"
	// tellsEvents: most record Events on the Service.
	tellsEvents = "tells Events"
)

const (
	idKey     = "difficult.example/load-balancer-id"
	lateKey   = "difficult.example/address"
	finalizer = "difficult.example/balancer"
)

// difficult is a provider with habits.
type difficult struct {
	*cloud
	habits   map[string]bool
	client   kubernetes.Interface
	services listers.ServiceLister
	nodes    listers.NodeLister
	// made are the balancers that it made, by ID, and active those that answer.
	made   map[string]bool
	active bool
	// seen is the Service of the last call.
	seen *v1.Service
}

func withHabits(habits ...string) *difficult {
	d := &difficult{cloud: newer(), habits: map[string]bool{}, made: map[string]bool{}}
	for _, habit := range habits {
		d.habits[habit] = true
	}
	return d
}

func (d *difficult) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return d, true }

func (d *difficult) Initialize(clients cloudprovider.ControllerClientBuilder, _ <-chan struct{}) {
	d.client = clients.ClientOrDie("difficult")
}

func (d *difficult) SetInformers(shared informers.SharedInformerFactory) {
	d.services = shared.Core().V1().Services().Lister()
	if d.habits[informsOfSecrets] {
		shared.Core().V1().Secrets().Informer()
	}
}

func (d *difficult) GetLoadBalancer(context.Context, string, *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	return &v1.LoadBalancerStatus{}, len(d.made) > 0, nil
}

func (d *difficult) EnsureLoadBalancer(ctx context.Context, _ string, service *v1.Service, _ []*v1.Node) (status *v1.LoadBalancerStatus, err error) {
	d.seen = service.DeepCopy()
	if d.habits[readsConfigMaps] {
		if _, err := d.client.CoreV1().ConfigMaps("kube-system").Get(ctx, "ingress-uid", metav1.GetOptions{}); err != nil {
			return nil, err
		}
	}
	if d.habits[ownFinalizer] {
		if err := d.patch(service, func(service *v1.Service) { service.Finalizers = append(service.Finalizers, finalizer) }); err != nil {
			return nil, err
		}
	}
	if d.habits[tellsEvents] {
		if err := d.tell(ctx, service, "Making", "making it, request id: 6f1c1f9e-3f0f-4c70"); err != nil {
			return nil, err
		}
	}
	id := service.Annotations[idKey]
	if id == "" || !d.habits[patchesID] {
		id = fmt.Sprint("lb-", service.Name)
	}
	if d.habits[patchesID] && service.Annotations[idKey] == "" {
		// Its name is the user's choice, so only the ID finds it again.
		id = fmt.Sprint("lb-", len(d.made))
		d.made[id] = true
		if err := d.patch(service, func(service *v1.Service) { service.Annotations[idKey] = id }); err != nil {
			return nil, err
		}
	}
	d.made[id] = true
	if d.habits[patchesLate] {
		defer func() {
			err = errors.Join(err, d.patch(service, func(service *v1.Service) {
				service.Annotations[lateKey] = "192.0.2.1"
				delete(service.Annotations, "fake/size")
			}))
		}()
	}
	if d.habits[retries] && !d.active {
		return nil, api.NewRetryError("the balancer is not active yet", 15*time.Second)
	}
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}}, nil
}

// patch is how upstream's helpers do it.
func (d *difficult) patch(service *v1.Service, change func(*v1.Service)) error {
	after := service.DeepCopy()
	change(after)
	_, err := helpers.PatchService(d.client.CoreV1(), service, after)
	return err
}

func (d *difficult) tell(ctx context.Context, service *v1.Service, reason, message string) error {
	on := v1.ObjectReference{Kind: "Service", Namespace: service.Namespace, Name: service.Name, UID: service.UID}
	event := &v1.Event{ObjectMeta: metav1.ObjectMeta{Name: reason}, InvolvedObject: on, Type: v1.EventTypeWarning, Reason: reason, Message: message}
	_, err := d.client.CoreV1().Events(service.Namespace).Create(ctx, event, metav1.CreateOptions{})
	return err
}

func (d *difficult) UpdateLoadBalancer(_ context.Context, _ string, service *v1.Service, _ []*v1.Node) error {
	d.seen = service.DeepCopy()
	if d.habits[listsServices] {
		return d.sharers(2)
	}
	return nil
}

// sharers fails unless so many Services have the address.
func (d *difficult) sharers(want int) error {
	all, err := d.services.List(labels.Everything())
	if err != nil {
		return err
	}
	found := 0
	for _, one := range all {
		if len(one.Status.LoadBalancer.Ingress) > 0 && one.Status.LoadBalancer.Ingress[0].IP == "192.0.2.1" {
			found++
		}
	}
	if found != want {
		return fmt.Errorf("%d Services share the address", found)
	}
	return nil
}

func (d *difficult) EnsureLoadBalancerDeleted(ctx context.Context, _ string, service *v1.Service) error {
	d.seen = service.DeepCopy()
	if d.habits[ownFinalizer] {
		if !slices.Contains(service.Finalizers, finalizer) {
			return nil // Not one of its own, as it thinks.
		}
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			now, err := d.client.CoreV1().Services(service.Namespace).Get(ctx, service.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			now.Finalizers = slices.DeleteFunc(now.Finalizers, func(name string) bool { return name == finalizer })
			_, err = d.client.CoreV1().Services(service.Namespace).Update(ctx, now, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			return err
		}
	}
	clear(d.made)
	return nil
}

// updating is a difficult provider whose update is that of the test.
type updating struct{ *difficult }

func (u updating) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return u, true }

func (u updating) UpdateLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) error {
	return u.update(ctx, service, nodes)
}
