package privateapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// selected returns a filter for the objects that a request's selectors match.
func selected(request *http.Request) (func(*unstructured.Unstructured) bool, *apierrors.StatusError) {
	byLabel, err := labels.Parse(request.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	byField, err := fields.ParseSelector(request.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return func(object *unstructured.Unstructured) bool {
		named := fields.Set{"metadata.name": object.GetName(), "metadata.namespace": object.GetNamespace()}
		return byLabel.Matches(labels.Set(object.GetLabels())) && byField.Matches(named)
	}, nil
}

// watch streams changes, after the existing objects if requested.
func (t transport) watch(request *http.Request, about target, kind schema.GroupVersionKind) *http.Response {
	chosen, refusal := selected(request)
	if refusal != nil {
		return refused(request, refusal)
	}
	from := request.URL.Query().Get("resourceVersion")
	initial := request.URL.Query().Get("sendInitialEvents") == "true"
	if _, _, known := t.api.since(about.of.Resource, parsed(from)); !initial && from != "" && from != "0" && !known {
		return refused(request, apierrors.NewResourceExpired("the version is too old; list again"))
	}
	reader, writer := io.Pipe()
	stream := &stream{api: t.api, about: about, kind: kind, chosen: chosen, out: json.NewEncoder(writer)}
	go func() {
		writer.CloseWithError(stream.run(request.Context(), from, initial))
	}()
	return response(request, http.StatusOK, reader)
}

// stream is one watch.
type stream struct {
	api    *API
	about  target
	kind   schema.GroupVersionKind
	chosen func(*unstructured.Unstructured) bool
	out    *json.Encoder
}

// run ends without an error when the reader disconnects, the API stops, or the stream has fallen too far behind: the reader
// then lists again.
func (s *stream) run(ctx context.Context, from string, initial bool) error {
	at := parsed(from)
	if initial || from == "" || from == "0" {
		objects, version := s.api.list(s.about.of.Resource, s.about.namespace)
		for _, object := range objects {
			if err := s.send("ADDED", object); err != nil {
				return err
			}
		}
		at = version
		if err := s.mark(version, initial); err != nil {
			return err
		}
	}
	for {
		events, changed, known := s.api.since(s.about.of.Resource, at)
		if !known {
			return nil
		}
		for _, one := range events {
			if s.about.namespace == "" || one.object.GetNamespace() == s.about.namespace {
				if err := s.tell(one); err != nil {
					return err
				}
			}
			at = one.version
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		case <-s.api.stop:
			return nil
		}
	}
}

func (s *stream) send(kind string, object *unstructured.Unstructured) error {
	if !s.chosen(object) {
		return nil
	}
	return s.encode(kind, object)
}

// tell sends a change as the watcher sees it: an object that ceases to match is deleted for it, one that begins to is new.
func (s *stream) tell(one event) error {
	was, is := one.before != nil && s.chosen(one.before), s.chosen(one.object)
	switch {
	case was && !is:
		return s.encode("DELETED", one.object)
	case is && !was:
		return s.encode("ADDED", one.object)
	case is:
		return s.encode(one.kind, one.object)
	default:
		return nil
	}
}

func (s *stream) encode(kind string, object *unstructured.Unstructured) error {
	return s.out.Encode(map[string]any{"type": kind, "object": object.Object})
}

// mark reports that all initial objects have been sent.
func (s *stream) mark(version int64, wanted bool) error {
	if !wanted {
		return nil
	}
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(s.kind)
	object.SetResourceVersion(formatted(version))
	object.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return s.out.Encode(map[string]any{"type": "BOOKMARK", "object": object.Object})
}
