package bridge_test

import (
	"strings"
	"testing"

	"cloudprovider.ccm/sdk/bridge"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	listers "k8s.io/client-go/listers/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// informed is a provider that waits for the API, as some do.
type informed struct {
	*cloud
	nodes       listers.NodeLister
	initialized int
	panics      bool
}

func (i *informed) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {
	if i.panics {
		panic("no clients")
	}
	i.initialized++
}

func (i *informed) SetInformers(shared informers.SharedInformerFactory) {
	i.nodes = shared.Core().V1().Nodes().Lister()
}

func TestAProviderGetsItsClientsAndInformersFirst(t *testing.T) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	shared := informers.NewSharedInformerFactory(fake.NewClientset(node), 0)
	stop := make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		shared.Shutdown()
	})
	cloud := &informed{cloud: newer()}
	if _, err := bridge.New(cloud, bridge.WithInitialize(nil, shared, stop)); err != nil {
		t.Fatal(err)
	}
	if _, err := cloud.nodes.Get("a"); err != nil || cloud.initialized != 1 {
		t.Errorf("%v, initialized %d times", err, cloud.initialized)
	}
	cloud.panics = true
	_, err := bridge.New(cloud, bridge.WithInitialize(nil, shared, stop))
	if err == nil || !strings.Contains(err.Error(), "cannot be initialized") {
		t.Error(err)
	}
}
