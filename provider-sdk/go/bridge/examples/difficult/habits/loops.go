package habits

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

// between is the interval of the loops.
const between = 100 * time.Millisecond

func pause() { time.Sleep(between) }

func (c *Cloud) Initialize(clients cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	c.client, c.stop = clients.ClientOrDie("difficult"), stop
	if !c.has(WritesNodes) {
		return
	}
	own := informers.NewSharedInformerFactory(c.client, 0)
	nodes := own.Core().V1().Nodes()
	_, _ = nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { c.writeNode(object.(*v1.Node)) },
		UpdateFunc: func(_, object any) { c.writeNode(object.(*v1.Node)) },
	})
	own.Start(stop)
}

func (c *Cloud) SetInformers(shared informers.SharedInformerFactory) {
	services := shared.Core().V1().Services()
	if c.has(ListsServices) || c.has(RunsLoops) {
		c.services = services.Lister()
	}
	if c.has(WantsNodeLister) && c.nodes == nil {
		c.nodes = shared.Core().V1().Nodes().Lister()
	}
	if c.has(ReadsSecrets) {
		shared.Core().V1().Secrets().Informer()
	}
	if c.has(RunsLoops) {
		synced := services.Informer().HasSynced
		go wait.Until(func() {
			if synced() {
				c.writeFirewall()
			}
		}, between, c.stop)
	}
}

// writeFirewall opens the ports that the Services need, and closes all others.
func (c *Cloud) writeFirewall() {
	all, err := c.services.List(labels.Everything())
	if err != nil {
		return
	}
	var lines []string
	for _, service := range all {
		if service.Spec.Type == v1.ServiceTypeLoadBalancer && len(service.Spec.Ports) > 0 {
			lines = append(lines, fmt.Sprintf("%s/%s %d\n", service.Namespace, service.Name, service.Spec.Ports[0].NodePort))
		}
	}
	slices.Sort(lines)
	_ = c.keep(".", "firewall", strings.Join(lines, ""))
}

// writeNode writes a label and a taint on a node that has its provider ID.
func (c *Cloud) writeNode(seen *v1.Node) {
	if seen.Spec.ProviderID == "" || seen.Labels[HostKey] != "" {
		return
	}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		nodes := c.client.CoreV1().Nodes()
		node, err := nodes.Get(context.Background(), seen.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Labels[HostKey] = "host-1"
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: SlowKey, Effect: v1.TaintEffectPreferNoSchedule})
		_, err = nodes.Update(context.Background(), node, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		klog.ErrorS(err, "cannot write a node", "node", seen.Name)
	}
}

// Registry is the provider's own registry, like hcloud's; whoever serves the provider must serve it too.
var Registry = prometheus.NewRegistry()

// registerMetrics registers one metric in each kind of registry.
func registerMetrics() {
	ours := prometheus.NewCounter(prometheus.CounterOpts{Name: "difficult_own_total", Help: "In a registry of its own."})
	_ = Registry.Register(ours)
	ours.Inc()
	theirs := metrics.NewCounter(&metrics.CounterOpts{Name: "difficult_shared_total", Help: "In component-base's registry."})
	_ = legacyregistry.Register(theirs)
	theirs.Inc()
}
