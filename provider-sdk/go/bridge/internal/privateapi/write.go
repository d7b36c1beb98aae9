package privateapi

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

// Listener is called for a provider's requests.
type Listener struct {
	// Written is called before a Service's annotations, finalizers and conditions become those of after; an error forbids it.
	Written func(before, after *corev1.Service) error
	// Told is called for each Event.
	Told func(on corev1.ObjectReference, kind, reason, message string)
	// Missed is called for a refused request that a real Kubernetes API would serve, once for each verb and kind.
	Missed func(verb string, of schema.GroupResource)
}

// Listen sets the listener. Until then, the API accepts Events, and refuses all other writes.
func (a *API) Listen(to Listener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listener = to
}

func (a *API) heard() Listener {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.listener
}

func (a *API) missed(verb string, of schema.GroupResource) {
	if hear := a.heard().Missed; hear != nil && a.first(verb+of.String()) {
		hear(verb, of)
	}
}

// partial warns once of a list that a real Kubernetes API would answer with more: nobody names all Services.
func (a *API) partial(of schema.GroupResource) {
	if of == services && a.first("partial") {
		slog.Warn("the cloud provider lists Services, and sees only those with a load balancer that this sidecar was called with; " +
			"set --kubeconfig if it decides anything from the others")
	}
}

// first reports whether this was not told before.
func (a *API) first(what string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.told[what]
	a.told[what] = true
	return !was
}

func (a *API) tellEvent(on corev1.ObjectReference, kind, reason, message string) {
	slog.Info("the cloud provider recorded an Event", "kind", on.Kind, "namespace", on.Namespace, "name", on.Name, "type", kind,
		"reason", reason, "message", message)
	if hear := a.heard().Told; hear != nil {
		hear(on, kind, reason, message)
	}
}

// write changes the annotations, finalizers and conditions of a Service, if the listener allows it.
func (t transport) write(request *http.Request, about target) *http.Response {
	t.api.writing.Lock()
	defer t.api.writing.Unlock()
	object, there := t.api.get(key{about.of.Resource, about.namespace, about.name})
	if !there {
		return refused(request, apierrors.NewNotFound(about.of.GroupResource(), about.name))
	}
	before, after := &corev1.Service{}, &corev1.Service{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, before); err != nil {
		return refused(request, apierrors.NewInternalError(err))
	}
	if refusal := changed(request, before, after); refusal != nil {
		return refused(request, refusal)
	}
	if version := after.ResourceVersion; version != "" && version != before.ResourceVersion {
		return refused(request, apierrors.NewConflict(about.of.GroupResource(), about.name, fmt.Errorf("the Service has changed; read it again")))
	}
	allowed := before.DeepCopy()
	allowed.Annotations, allowed.Finalizers, allowed.Status.Conditions = after.Annotations, after.Finalizers, after.Status.Conditions
	hear := t.api.heard().Written
	if hear == nil || !sameBut(allowed, after) {
		t.api.missed(request.Method, about.of.GroupResource())
		return refused(request, forbidden(about))
	}
	if err := hear(before, allowed); err != nil {
		return refused(request, apierrors.NewForbidden(about.of.GroupResource(), about.name, err))
	}
	if _, err := t.api.Set(about.of.Resource, allowed); err != nil {
		return refused(request, apierrors.NewInternalError(err))
	}
	object, _ = t.api.get(key{about.of.Resource, about.namespace, about.name})
	return answered(request, http.StatusOK, object.Object)
}

// sameBut reports whether a Service has only permitted changes. Fields that only a real API maintains do not count.
func sameBut(allowed, after *corev1.Service) bool {
	plain := func(service *corev1.Service) *corev1.Service {
		service = service.DeepCopy()
		service.ResourceVersion, service.ManagedFields, service.TypeMeta = "", nil, allowed.TypeMeta
		return service
	}
	return equality.Semantic.DeepEqual(plain(allowed), plain(after))
}

// changed decodes the Service that a request wants into after.
func changed(request *http.Request, before, after *corev1.Service) *apierrors.StatusError {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if request.Method == http.MethodPut {
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, after); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
		return nil
	}
	old, err := json.Marshal(before)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	kind, _, _ := mime.ParseMediaType(request.Header.Get("Content-Type"))
	var patched []byte
	switch types.PatchType(kind) {
	case types.JSONPatchType:
		var patch jsonpatch.Patch
		if patch, err = jsonpatch.DecodePatch(body); err == nil {
			patched, err = patch.Apply(old)
		}
	case types.MergePatchType:
		patched, err = jsonpatch.MergePatch(old, body)
	case types.StrategicMergePatchType:
		patched, err = strategicpatch.StrategicMergePatch(old, body, corev1.Service{})
	default:
		return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, request.Method, services, before.Name, remedy, 0, true)
	}
	if err == nil {
		err = json.Unmarshal(patched, after)
	}
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}
