// Package privateapi is the Kubernetes API that a provider sees without credentials for the real one: an apiserver
// within this process, without a network.
//
// In: the Nodes and Services that the host sends. Out: a rest.Config for ordinary clients and informers, which list and
// watch those Nodes and Services, and the Events that they record on them. Everything else is forbidden, with an error that names
// the remedy: an empty response would mean that nothing exists.
package privateapi

import (
	"reflect"
	"sort"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// kept is how many past events a watch can start from, and keptBytes about how large all of them are together: a Service may have
// hundreds of kilobytes of annotations, and whoever may edit it may do so again and again.
const (
	kept      = 4096
	keptBytes = 16 << 20
)

// API is such an apiserver. Its zero value is not usable; create one with New.
type API struct {
	mu      sync.Mutex
	version int64
	objects map[key]*unstructured.Unstructured
	history []event
	// bytes is about how large the history is.
	bytes int
	// changed is closed, and replaced, on every change.
	changed chan struct{}
	// stop ends all watches.
	stop <-chan struct{}

	// recorded is called for each Event on a Service that is here.
	recorded func(service types.UID, kind, reason, message string)
	warned   map[string]bool
}

// key identifies an object: resource, namespace and name.
type key struct{ resource, namespace, name string }

// event is one change, at one version.
type event struct {
	resource string
	version  int64
	kind     string
	// before is nil for an object that is new.
	before, object *unstructured.Unstructured
}

// New returns an empty API, whose watches end when stop is closed. It passes on Events that are recorded on its Services.
func New(stop <-chan struct{}, recorded func(service types.UID, kind, reason, message string)) *API {
	return &API{
		version: 1, objects: map[key]*unstructured.Unstructured{}, changed: make(chan struct{}), stop: stop,
		recorded: recorded, warned: map[string]bool{},
	}
}

// Config returns the client configuration. The address cannot be dialled.
func (a *API) Config() *rest.Config {
	return &rest.Config{
		Host: "http://private-api.invalid", Transport: transport{a},
		// No rate limit: the API is in this process's memory.
		QPS: -1,
	}
}

// Set creates an object or replaces it, and returns its version. It first deletes an object with another uid, and does
// nothing if the object is unchanged.
func (a *API) Set(resource string, object runtime.Object) (int64, error) {
	return a.set(resource, object, true)
}

// SetUnlessTaken is Set for an object that may be gone, or is not of the provider's own cluster: if its name has an object with another
// uid, that one stays.
func (a *API) SetUnlessTaken(resource string, object runtime.Object) (int64, error) {
	return a.set(resource, object, false)
}

func (a *API) set(resource string, object runtime.Object, replace bool) (int64, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return 0, err
	}
	wanted := &unstructured.Unstructured{Object: content}
	of := key{resource, wanted.GetNamespace(), wanted.GetName()}
	a.mu.Lock()
	defer a.mu.Unlock()
	before, there := a.objects[of]
	if there && before.GetUID() != wanted.GetUID() {
		if !replace {
			return parsed(before.GetResourceVersion()), nil
		}
		a.remove(of)
		there = false
	}
	if there {
		wanted.SetResourceVersion(before.GetResourceVersion())
		if reflect.DeepEqual(before.Object, wanted.Object) {
			return parsed(before.GetResourceVersion()), nil
		}
		a.tell(of, "MODIFIED", wanted)
		return a.version, nil
	}
	a.tell(of, "ADDED", wanted)
	return a.version, nil
}

// Delete removes the object with this uid and returns the version of the deletion; 0 if it did not exist.
func (a *API) Delete(resource, namespace, name string, uid types.UID) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := key{resource, namespace, name}
	if object, there := a.objects[of]; !there || object.GetUID() != uid {
		return 0
	}
	a.remove(of)
	return a.version
}

// remove removes an object that exists; the caller holds the lock.
func (a *API) remove(of key) { a.tell(of, "DELETED", a.objects[of].DeepCopy()) }

// tell records a change and wakes all watches; the caller holds the lock.
func (a *API) tell(of key, kind string, object *unstructured.Unstructured) {
	a.version++
	before := a.objects[of]
	object.SetResourceVersion(formatted(a.version))
	if kind == "DELETED" {
		delete(a.objects, of)
	} else {
		a.objects[of] = object
	}
	a.history = append(a.history, event{of.resource, a.version, kind, before, object})
	a.bytes += sizeOf(object.Object)
	if len(a.history) > 2*kept || a.bytes > 2*keptBytes {
		a.forget()
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

// forget drops the oldest events; the caller holds the lock.
func (a *API) forget() {
	first := max(len(a.history)-kept, 0)
	for at, one := range a.history {
		if at >= first && a.bytes <= keptBytes {
			first = at
			break
		}
		a.bytes -= sizeOf(one.object.Object)
		first = at + 1
	}
	a.history = append([]event(nil), a.history[first:]...)
}

// sizeOf is about how many bytes a part of an object takes.
func sizeOf(part any) int {
	const each = 16
	switch part := part.(type) {
	case map[string]any:
		size := each
		for key, value := range part {
			size += len(key) + each + sizeOf(value)
		}
		return size
	case []any:
		size := each
		for _, value := range part {
			size += sizeOf(value)
		}
		return size
	case string:
		return each + len(part)
	}
	return each
}

// list returns the objects of a resource, in one namespace unless it is empty, and the API's version.
func (a *API) list(resource, namespace string) (all []*unstructured.Unstructured, version int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for of, object := range a.objects {
		if of.resource == resource && (namespace == "" || of.namespace == namespace) {
			all = append(all, object)
		}
	}
	return all, a.version
}

func (a *API) get(of key) (*unstructured.Unstructured, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	object, there := a.objects[of]
	return object, there
}

// since returns the changes after a version, a channel that the next change closes, and whether the version is still
// known.
func (a *API) since(resource string, version int64) (events []event, next <-chan struct{}, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.history) > 0 && version < a.history[0].version-1 {
		return nil, nil, false
	}
	first := sort.Search(len(a.history), func(at int) bool { return a.history[at].version > version })
	for _, one := range a.history[first:] {
		if one.resource == resource {
			events = append(events, one)
		}
	}
	return events, a.changed, true
}

func parsed(version string) int64 {
	number, _ := strconv.ParseInt(version, 10, 64)
	return number
}

func formatted(version int64) string { return strconv.FormatInt(version, 10) }
