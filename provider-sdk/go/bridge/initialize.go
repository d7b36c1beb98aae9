package bridge

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"

	"cloudprovider.ccm/sdk/bridge/internal/privateapi"
)

// syncedWithin is how long a start waits for the provider's informers of a real API, syncedPrivateWithin for those of the
// private one, which is in memory.
const (
	syncedWithin        = time.Minute
	syncedPrivateWithin = 3 * time.Second
)

// surroundings are what a controller manager passes to a provider.
type surroundings struct {
	clients cloudprovider.ControllerClientBuilder
	shared  informers.SharedInformerFactory
	stop    <-chan struct{}
}

// WithKubernetes gives the provider clients and informers of this Kubernetes API instead of the private one, and so the
// real objects. The provider then acts with these credentials; the bridge reads nodes and Services with them.
func WithKubernetes(config *rest.Config) Option {
	return func(b *bridge) { b.kubernetes = config }
}

// surround creates clients and informers.
func (b *bridge) surround(stop <-chan struct{}) error {
	config := b.kubernetes
	if config == nil {
		b.view.api = privateapi.New(stop, b.events.keep)
		config = b.view.api.Config()
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	shared := informers.NewSharedInformerFactory(client, resync())
	b.surroundings = &surroundings{clients{config}, shared, stop}
	if b.kubernetes == nil {
		return nil
	}
	// The apiserver itself says how much is too much; a limit here would only make balancers wait.
	unlimited := rest.CopyConfig(config)
	unlimited.QPS = -1
	own, err := kubernetes.NewForConfig(unlimited)
	b.view.live = &live{client: own, patience: b.patience}
	return err
}

// resync is how often a provider's handlers are told of all objects again, as by its own controller manager: between 12 and 24 hours.
func resync() time.Duration { return 12*time.Hour + rand.N(12*time.Hour) }

func (b *bridge) initialize() error {
	around := b.surroundings
	b.cloud.Initialize(around.clients, around.stop)
	if user, informed := b.cloud.(cloudprovider.InformerUser); informed {
		user.SetInformers(around.shared)
	}
	b.parts = b.ask()
	if around.shared == nil {
		return nil
	}
	around.shared.Start(around.stop)
	within := syncedWithin
	if b.view.api != nil {
		within = syncedPrivateWithin
	}
	synced, err := waitForSync(around, within)
	if err != nil {
		return err
	}
	informs, informsOfServices := synced[reflect.TypeFor[*v1.Node]()], synced[reflect.TypeFor[*v1.Service]()]
	if live := b.view.live; live != nil {
		nodes := around.shared
		if !informs {
			nodes = informers.NewSharedInformerFactory(live.client, 0) // Which nobody handles events of.
		}
		live.follow(nodes.Core().V1().Nodes())
		nodes.Start(around.stop)
	}
	if b.view.api == nil {
		return nil
	}
	if informs {
		err = b.view.informed.follow(around.shared.Core().V1().Nodes().Informer())
	}
	if informsOfServices {
		err = errors.Join(err, b.view.informedOfServices.follow(around.shared.Core().V1().Services().Informer()))
	}
	return err
}

// waitForSync waits for the informers: the lister of one that has not synced would report that there are no objects.
func waitForSync(around *surroundings, within time.Duration) (map[reflect.Type]bool, error) {
	soon := make(chan struct{})
	timer := time.AfterFunc(within, func() { close(soon) })
	defer timer.Stop()
	synced := around.shared.WaitForCacheSync(either(around.stop, soon))
	var missing []string
	for kind, is := range synced {
		if !is {
			missing = append(missing, kind.String())
		}
	}
	if len(missing) == 0 {
		return synced, nil
	}
	slices.Sort(missing)
	return nil, errors.New("the informers of " + strings.Join(missing, ", ") + " have not synced; " +
		fmt.Sprintf("set a --kubeconfig with permission to list and watch them (waited %v)", within))
}

// either is closed when either of the two is.
func either(one, other <-chan struct{}) <-chan struct{} {
	out := make(chan struct{})
	go func() {
		defer close(out)
		select {
		case <-one:
		case <-other:
		}
	}()
	return out
}
