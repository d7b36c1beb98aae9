package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	informersv1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// live reads the objects of a real Kubernetes API: Services one by one, in their current state, and nodes from an
// informer.
type live struct {
	client kubernetes.Interface
	// patience is how long a read may take: an API that hangs must not keep the place of a mutation, whose context outlives its caller.
	patience time.Duration

	nodes  listers.NodeLister
	synced cache.InformerSynced
}

// follow reads nodes from the API. Without permission for that, providers see nodes as the host sent them.
func (l *live) follow(nodes informersv1.NodeInformer) {
	l.nodes, l.synced = nodes.Lister(), nodes.Informer().HasSynced
}

// node returns the real node, if it is as the host told of it, or else the host's: the informer may be ahead of the host, or behind it.
func (l *live) node(told *v1.Node, covered *pb.NodeFields) *v1.Node {
	if l.synced == nil || !l.synced() {
		return told
	}
	if real, err := l.nodes.Get(told.Name); err == nil && isSameNode(real, told, covered) {
		return real
	}
	return told
}

// isSameNode compares the identity of two nodes, and what these fields cover.
func isSameNode(real, told *v1.Node, covered *pb.NodeFields) bool {
	return real.UID == told.UID && real.Spec.ProviderID == told.Spec.ProviderID &&
		maps.Equal(wantedOf(real.Labels, covered.GetLabels()), wantedOf(told.Labels, covered.GetLabels())) &&
		maps.Equal(wantedOf(real.Annotations, covered.GetAnnotations()), wantedOf(told.Annotations, covered.GetAnnotations())) &&
		maps.Equal(taintsOf(real, covered.GetTaints()), taintsOf(told, covered.GetTaints())) &&
		(!covered.GetUnschedulable() || real.Spec.Unschedulable == told.Spec.Unschedulable) &&
		(!covered.GetReadiness() || isReady(real) == isReady(told)) &&
		(!covered.GetDeletionTime() || (real.DeletionTimestamp == nil) == (told.DeletionTimestamp == nil)) &&
		(!covered.GetPodCidrs() || slices.Equal(real.Spec.PodCIDRs, told.Spec.PodCIDRs)) &&
		(!covered.GetAddresses() || sameAddresses(real.Status.Addresses, told.Status.Addresses))
}

func wantedOf(pairs map[string]string, wanted []string) map[string]string {
	some := maps.Clone(pairs)
	maps.DeleteFunc(some, func(key, _ string) bool { return !wants(wanted, key) })
	return some
}

func taintsOf(node *v1.Node, wanted []string) map[v1.Taint]bool {
	taints := map[v1.Taint]bool{}
	for _, one := range node.Spec.Taints {
		if wants(wanted, one.Key) {
			taints[v1.Taint{Key: one.Key, Value: one.Value, Effect: one.Effect}] = true
		}
	}
	return taints
}

func isReady(node *v1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(one v1.NodeCondition) bool {
		return one.Type == v1.NodeReady && one.Status == v1.ConditionTrue
	})
}

// service returns the real Service, which may have been edited since the host sent it.
func (l *live) service(ctx context.Context, service *pb.Service) (*v1.Service, error) {
	ctx, done := context.WithTimeout(ctx, l.patience)
	defer done()
	ref := service.GetRef()
	found, err := l.client.CoreV1().Services(ref.GetNamespace()).Get(ctx, ref.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && string(found.UID) != ref.GetUid():
		return serviceOf(service), nil // It has been deleted; its balancer is deleted by its last known state.
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		// Only somebody who gives the right helps, so the host waits longer each time. It is no right in the cloud, and says nothing of that.
		return nil, fault.New(pb.ErrorReason_ERROR_REASON_INTERNAL_ERROR, fmt.Sprintf("--kubeconfig has no right to read the Service: %v", err), fault.WithCause(err))
	case err != nil:
		return nil, fault.RetryLater(notReadyFor, fmt.Sprintf("cannot read the Service with --kubeconfig: %v", err), fault.WithCause(err))
	}
	found.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	if found.Annotations == nil {
		found.Annotations = map[string]string{}
	}
	return found, nil
}

// showAsTold makes a real Service, which is as edited last, look as the host told of it: a digest covers that, and an edit that is
// taken back meanwhile causes no further call. Those Services that the bridge makes look so already.
func (m *mirror) showAsTold(service *v1.Service, told *pb.Service) {
	if m.live == nil {
		return
	}
	real, was := service.DeepCopy(), serviceOf(told)
	was.Spec.Selector, was.Spec.PublishNotReadyAddresses = service.Spec.Selector, service.Spec.PublishNotReadyAddresses
	was.Spec.TrafficDistribution = service.Spec.TrafficDistribution
	if maps.Equal(networksOf(service.Spec.LoadBalancerSourceRanges), networksOf(was.Spec.LoadBalancerSourceRanges)) {
		// The host sorts them.
		was.Spec.LoadBalancerSourceRanges = service.Spec.LoadBalancerSourceRanges
	}
	service.Spec = was.Spec
	covered := m.wants.GetService()
	service.Labels = asTold(real, "labels", real.Labels, was.Labels, covered.GetLabels())
	service.Annotations = asTold(real, "annotations", real.Annotations, was.Annotations, covered.GetAnnotations())
	if !equality.Semantic.DeepEqual(service, real) {
		service.ResourceVersion = neverCurrent
	}
}

// asTold returns the labels or the annotations that the host told of, with those that it tells nobody of, and those that the provider
// has added itself, by which some find their balancer.
func asTold(service *v1.Service, kind string, real, told map[string]string, covered []string) map[string]string {
	all := copied(told)
	for key, value := range real {
		_, is := told[key]
		if !is && (!wants(covered, key) || key == v1.LastAppliedConfigAnnotation || wrote(service, kind, key)) {
			all[key] = value
		}
	}
	return all
}

// wrote reports whether the provider has written a label or an annotation, as the API keeps account of it: under the name of the
// executable, unless the provider names another field manager.
func wrote(service *v1.Service, kind, key string) bool {
	us, _, _ := strings.Cut(rest.DefaultKubernetesUserAgent(), "/")
	return slices.ContainsFunc(service.ManagedFields, func(one metav1.ManagedFieldsEntry) bool {
		var fields struct {
			Metadata map[string]map[string]any `json:"f:metadata"`
		}
		if one.Manager != us || one.FieldsV1 == nil || json.Unmarshal(one.FieldsV1.GetRawBytes(), &fields) != nil {
			return false
		}
		_, there := fields.Metadata["f:"+kind]["f:"+key]
		return there
	})
}

func networksOf(ranges []string) map[netip.Prefix]bool {
	networks := map[netip.Prefix]bool{}
	for _, one := range ranges {
		network, _ := netip.ParsePrefix(strings.TrimSpace(one))
		networks[network.Masked()] = true
	}
	return networks
}

// neverCurrent makes a provider's PUT of the Service a conflict, since it would undo somebody's edit. A patch does not look at it.
const neverCurrent = "1"
