package privateapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// transport answers clients' requests without a network.
type transport struct{ api *API }

// target is the resource or object of a request.
type target struct {
	of          schema.GroupVersionResource
	namespace   string
	name        string
	subresource string
}

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Body != nil {
		defer request.Body.Close()
	}
	about, is := parse(request.URL.Path)
	resource := about.of.GroupResource()
	switch {
	case !is:
		return refused(request, apierrors.NewGenericServerResponse(http.StatusNotFound, request.Method, resource, about.name, remedy, 0, true)), nil
	case resource == events || resource == eventsOfTheirGroup:
		return t.event(request, about)
	case !held[about.of]:
		t.api.missed(request.Method, resource)
		return refused(request, forbidden(about)), nil
	case request.Method == http.MethodGet && about.name == "" && request.URL.Query().Get("watch") != "":
		t.api.partial(resource)
		return t.watch(request, about, kinds[about.of]), nil
	case request.Method == http.MethodGet && about.name == "":
		t.api.partial(resource)
		return t.list(request, about), nil
	case request.Method == http.MethodGet:
		object, there := t.api.get(key{about.of.Resource, about.namespace, about.name})
		if !there {
			return refused(request, apierrors.NewNotFound(resource, about.name)), nil
		}
		return answered(request, http.StatusOK, object.Object), nil
	}
	t.api.missed(request.Method, resource)
	return refused(request, forbidden(about)), nil
}

// remedy explains how to get what is not served here: an empty response would be taken for the truth.
const remedy = "this provider has no Kubernetes credentials, so it sees only the nodes and Services that the host names; " +
	"set --kubeconfig=in-cluster, or =FILE, to give it some"

func forbidden(about target) *apierrors.StatusError {
	return apierrors.NewForbidden(about.of.GroupResource(), about.name, errors.New(remedy))
}

var (
	services           = schema.GroupResource{Resource: "services"}
	events             = schema.GroupResource{Resource: "events"}
	eventsOfTheirGroup = schema.GroupResource{Group: "events.k8s.io", Resource: "events"}
	// held are the kinds that this API holds.
	held = map[schema.GroupVersionResource]bool{
		{Version: "v1", Resource: "nodes"}: true, {Version: "v1", Resource: "services"}: true,
	}
)

// parse reads /api/v1/... and /apis/GROUP/VERSION/...
func parse(path string) (about target, is bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		about.of.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		about.of.Group, about.of.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return about, false
	}
	if parts[0] == "namespaces" && len(parts) >= 3 {
		about.namespace, parts = parts[1], parts[2:]
	}
	about.of.Resource = parts[0]
	if len(parts) > 1 {
		about.name = parts[1]
	}
	if len(parts) > 2 {
		about.subresource = parts[2]
	}
	return about, true
}

// kinds are the kinds of the resources, as clients know them.
var kinds = func() map[schema.GroupVersionResource]schema.GroupVersionKind {
	all := map[schema.GroupVersionResource]schema.GroupVersionKind{}
	for kind := range scheme.Scheme.AllKnownTypes() {
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		all[plural] = kind
	}
	return all
}()

func (t transport) list(request *http.Request, about target) *http.Response {
	chosen, err := selected(request)
	if err != nil {
		return refused(request, err)
	}
	objects, version := t.api.list(about.of.Resource, about.namespace)
	items := []any{}
	for _, object := range objects {
		if chosen(object) {
			items = append(items, object.Object)
		}
	}
	// Without a kind: the client knows which list it requested.
	return answered(request, http.StatusOK, map[string]any{
		"metadata": map[string]any{"resourceVersion": fmt.Sprint(version)}, "items": items,
	})
}

// event accepts an Event as if it were stored, and passes it on. Events cannot be read.
func (t transport) event(request *http.Request, about target) (*http.Response, error) {
	if request.Method != http.MethodPost {
		// A patch repeats an Event that was told before: not found makes the client create it anew.
		if request.Method == http.MethodPatch {
			return refused(request, apierrors.NewNotFound(about.of.GroupResource(), about.name)), nil
		}
		return refused(request, forbidden(about)), nil
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return refused(request, apierrors.NewBadRequest(err.Error())), nil
	}
	switch event := object.(type) {
	case *corev1.Event:
		t.api.record(event.InvolvedObject, event.Type, event.Reason, event.Message)
	case *eventsv1.Event:
		t.api.record(event.Regarding, event.Type, event.Reason, event.Note)
	}
	return answered(request, http.StatusCreated, object), nil
}

func (a *API) record(on corev1.ObjectReference, kind, reason, message string) {
	slog.Info("the cloud provider recorded an Event", "kind", on.Kind, "namespace", on.Namespace, "name", on.Name, "type", kind,
		"reason", reason, "message", message)
	service, there := a.get(key{services.Resource, on.Namespace, on.Name})
	if on.Kind == "Service" && there && service.GetUID() == on.UID && reason != "" {
		a.recorded(on.UID, kind, reason, message)
	}
}

// missed warns of a request that only a real Kubernetes API would serve, once for each verb and kind: most providers make it when
// they start.
func (a *API) missed(verb string, of schema.GroupResource) {
	if a.first(verb + of.String()) {
		slog.Warn("refused a request that needs a real Kubernetes API; set --kubeconfig if the cloud provider depends on it",
			"verb", verb, "kind", of.String())
	}
}

// partial warns once of a list that a real Kubernetes API would answer with more: nobody names all Services.
func (a *API) partial(of schema.GroupResource) {
	if of == services && a.first("partial") {
		slog.Warn("the cloud provider lists Services, and sees only those with a load balancer that this sidecar was called with; " +
			"set --kubeconfig if it decides anything from the others")
	}
}

// first reports whether nobody was warned of this before.
func (a *API) first(what string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.warned[what]
	a.warned[what] = true
	return !was
}

func refused(request *http.Request, err *apierrors.StatusError) *http.Response {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return answered(request, int(status.Code), status)
}

func answered(request *http.Request, code int, body any) *http.Response {
	text, err := json.Marshal(body)
	if err != nil {
		// Cannot happen: all bodies are values of this process that have JSON.
		code, text = http.StatusInternalServerError, nil
	}
	return response(request, code, io.NopCloser(bytes.NewReader(text)))
}

func response(request *http.Request, code int, body io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: code, Status: fmt.Sprintf("%d %s", code, http.StatusText(code)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: body, ContentLength: -1, Request: request,
	}
}
