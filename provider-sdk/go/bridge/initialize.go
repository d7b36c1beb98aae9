package bridge

import (
	"fmt"
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"

	"cloudprovider.ccm/sdk/bridge/internal/privateapi"
)

// WithKubernetes gives the provider clients and informers of this Kubernetes API instead of the private one. The credentials
// are then the sidecar's own.
func WithKubernetes(config *rest.Config) Option {
	return func(b *bridge) { b.kubernetes = config }
}

// WithInitialize does what a controller manager did before it started its controllers, with the caller's clients and
// informers: Initialize with the clients, SetInformers (of a cloudprovider.InformerUser) with the informers, which are
// then started and waited for. Whatever was started ends when stop is closed.
//
// Without it the bridge makes both, of the API given by WithKubernetes or else of a private one, which holds the Nodes and
// Services that the host names.
func WithInitialize(clients cloudprovider.ControllerClientBuilder, shared informers.SharedInformerFactory, stop <-chan struct{}) Option {
	return func(b *bridge) {
		b.initialize = func() error { return b.initializeWith(clients, shared, stop) }
	}
}

// initializeOwn makes clients and informers, and hands them to the provider.
func (b *bridge) initializeOwn(stop <-chan struct{}) error {
	config := b.kubernetes
	if config == nil {
		api := privateapi.New(stop)
		b.mirror.api, config = api, api.Config()
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return b.initializeWith(clients{config}, informers.NewSharedInformerFactory(client, 0), stop)
}

func (b *bridge) initializeWith(clients cloudprovider.ControllerClientBuilder, shared informers.SharedInformerFactory, stop <-chan struct{}) error {
	b.cloud.Initialize(clients, stop)
	user, informed := b.cloud.(cloudprovider.InformerUser)
	if !informed {
		return nil
	}
	user.SetInformers(shared)
	shared.Start(stop)
	synced := shared.WaitForCacheSync(stop)
	for kind, is := range synced {
		if !is {
			return fmt.Errorf("the informer of %v did not sync", kind)
		}
	}
	if synced[reflect.TypeFor[*v1.Node]()] {
		return b.mirror.follow(shared.Core().V1().Nodes().Informer())
	}
	return nil
}
