package bridge

import (
	"fmt"

	"k8s.io/client-go/informers"
	cloudprovider "k8s.io/cloud-provider"
)

// WithInitialize does what a controller manager did before it started its controllers, for a provider that truly needs the
// Kubernetes API: Initialize with the clients, SetInformers (of a cloudprovider.InformerUser) with the informers, which are
// then started and waited for. Whatever was started ends when stop is closed.
//
// Clients and informers are the caller's, and so are the Kubernetes credentials behind them: the bridge itself has none.
func WithInitialize(clients cloudprovider.ControllerClientBuilder, shared informers.SharedInformerFactory, stop <-chan struct{}) Option {
	return func(b *bridge) {
		b.initialize = func() error {
			b.cloud.Initialize(clients, stop)
			if user, is := b.cloud.(cloudprovider.InformerUser); is {
				user.SetInformers(shared)
			}
			shared.Start(stop)
			for kind, synced := range shared.WaitForCacheSync(stop) {
				if !synced {
					return fmt.Errorf("the informer of %v did not sync", kind)
				}
			}
			return nil
		}
	}
}
