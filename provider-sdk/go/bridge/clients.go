package bridge

import (
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cloudprovider "k8s.io/cloud-provider"
)

// inCluster is the value of --kubeconfig that selects the pod's service account.
const inCluster = "in-cluster"

// clients builds a provider's clients of one Kubernetes API, each with its own user agent.
type clients struct{ config *rest.Config }

var _ cloudprovider.ControllerClientBuilder = clients{}

func (c clients) Config(name string) (*rest.Config, error) {
	return rest.AddUserAgent(rest.CopyConfig(c.config), name), nil
}

func (c clients) ConfigOrDie(name string) *rest.Config {
	config, _ := c.Config(name) // Never fails.
	return config
}

func (c clients) Client(name string) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(c.ConfigOrDie(name))
}

// ClientOrDie panics, as its interface requires; the bridge guards Initialize.
func (c clients) ClientOrDie(name string) kubernetes.Interface {
	client, err := c.Client(name)
	if err != nil {
		panic(fmt.Sprintf("cannot create a Kubernetes client for %s: %v", name, err))
	}
	return client
}

// kubernetesConfig reads a kubeconfig, or uses the pod's own service account.
func kubernetesConfig(path string) (config *rest.Config, err error) {
	if path == inCluster {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", path)
	}
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%s: %w", path, err)
	}
	if config.QPS == 0 {
		// The limits of cloud controller managers; client-go's own default is a quarter of them.
		config.QPS, config.Burst = 20, 30
	}
	return config, nil
}
