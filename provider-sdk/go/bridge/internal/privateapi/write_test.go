package privateapi

import (
	"context"
	"fmt"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// D20: of writes at the same time, none is lost.
func TestWritesAtTheSameTimeAllStay(t *testing.T) {
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	api := New(stop)
	api.Listen(Listener{Written: func(_, _ *v1.Service) error { return nil }})
	service := &v1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "s"}}
	if _, err := api.Set(services.Resource, service); err != nil {
		t.Fatal(err)
	}
	config := api.Config()
	config.QPS = -1
	client := kubernetes.NewForConfigOrDie(config).CoreV1().Services("default")
	const writers = 50
	var all sync.WaitGroup
	for at := range writers {
		all.Go(func() {
			patch := fmt.Appendf(nil, `{"metadata": {"annotations": {"x.example/%d": "1"}}}`, at)
			if _, err := client.Patch(context.Background(), "web", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	found, err := client.Get(context.Background(), "web", metav1.GetOptions{})
	if err != nil || len(found.Annotations) != writers {
		t.Errorf("%d of %d stayed: %v", len(found.Annotations), writers, err)
	}
}
