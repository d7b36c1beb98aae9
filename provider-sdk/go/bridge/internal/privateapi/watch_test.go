package privateapi_test

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloudprovider.ccm/sdk/bridge/internal/privateapi"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// As from an apiserver: an informer with a selector would keep an object of whose last change it never hears.
func TestAWatchWithASelectorTellsWhatEntersAndLeaves(t *testing.T) {
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	api := privateapi.New(stop, func(types.UID, string, string, string) {})
	ctx, done := context.WithTimeout(t.Context(), 20*time.Second)
	defer done()
	// From the beginning: a list, whenever it came, would show less.
	options := metav1.ListOptions{LabelSelector: "!excluded", ResourceVersion: "1"}
	events, err := kubernetes.NewForConfigOrDie(api.Config()).CoreV1().Nodes().Watch(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	node := func(labels map[string]string) *v1.Node {
		return &v1.Node{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", Labels: labels},
		}
	}
	set := func(labels map[string]string) {
		if _, err := api.Set("nodes", node(labels)); err != nil {
			t.Fatal(err)
		}
	}
	set(map[string]string{"excluded": "1"})
	set(nil)
	set(map[string]string{"zone": "z"})
	set(map[string]string{"excluded": "1"})
	set(map[string]string{"excluded": "2"})
	set(nil)
	var told []watch.EventType
	for range 4 {
		event, open := <-events.ResultChan()
		if !open {
			t.Fatal("the watch ended after", told)
		}
		told = append(told, event.Type)
	}
	if want := []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Added}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

// Whoever may edit a Service may do so again and again, with hundreds of kilobytes of annotations.
func TestThePastTakesLittleMemory(t *testing.T) {
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	api := privateapi.New(stop, func(types.UID, string, string, string) {})
	large := strings.Repeat("x", 200<<10)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for number := range 1000 {
		service := &v1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "a", Annotations: map[string]string{"large": large + strconv.Itoa(number)}},
		}
		if _, err := api.Set("services", service); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("%d MiB are kept of 200 MiB of edits", grown>>20)
	}
	runtime.KeepAlive(api)
}
