package bridge

import (
	"time"

	"k8s.io/client-go/informers"
	cloudprovider "k8s.io/cloud-provider"
)

// WithExit replaces the exit of the process.
func WithExit(exit func(error)) Option { return func(b *bridge) { b.leading.exit = exit } }

// WithPatience replaces the time that an item gets while others of its batch wait for it.
func WithPatience(patience time.Duration) Option { return func(b *bridge) { b.patience = patience } }

// WithInitialize replaces the clients and informers that the bridge creates; what it starts ends when stop is closed.
func WithInitialize(clients cloudprovider.ControllerClientBuilder, shared informers.SharedInformerFactory, stop <-chan struct{}) Option {
	return func(b *bridge) { b.surroundings = &surroundings{clients, shared, stop} }
}
