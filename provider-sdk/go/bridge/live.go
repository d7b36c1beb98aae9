package bridge

import (
	"context"
	"fmt"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	informersv1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// live reads the objects of a real Kubernetes API: Services one by one, in their current state, and nodes from an
// informer.
type live struct {
	client kubernetes.Interface
	nodes  listers.NodeLister
	synced cache.InformerSynced
}

// follow reads nodes from the API. Without permission for that, providers see nodes as the host sent them.
func (l *live) follow(nodes informersv1.NodeInformer) {
	l.nodes, l.synced = nodes.Lister(), nodes.Informer().HasSynced
}

// node returns a known node, or nil.
func (l *live) node(name string) *v1.Node {
	if l.synced == nil || !l.synced() {
		return nil
	}
	node, err := l.nodes.Get(name)
	if err != nil {
		return nil
	}
	return node
}

// service returns the real Service; it may be newer than what the host sent, in which case the host calls again.
func (l *live) service(ctx context.Context, service *pb.Service) (*v1.Service, error) {
	ref := service.GetRef()
	found, err := l.client.CoreV1().Services(ref.GetNamespace()).Get(ctx, ref.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && string(found.UID) != ref.GetUid():
		return serviceOf(service), nil // It has been deleted; its balancer is deleted by its last known state.
	case err != nil:
		return nil, fault.RetryLater(notReadyFor, fmt.Sprintf("cannot read the Service with --kubeconfig: %v", err), fault.WithCause(err))
	}
	found.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	if found.Annotations == nil {
		found.Annotations = map[string]string{}
	}
	return found, nil
}
