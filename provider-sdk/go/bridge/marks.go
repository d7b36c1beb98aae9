package bridge

import (
	"maps"
	"slices"
	"strings"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mark is what the bridge must remember about a Service for as long as it has a load balancer, whichever host leads: that
// the load balancer is ours, and what the provider wrote to the Service, if there is no real Service to write to.
type mark struct {
	// Claimed reports that this bridge has created a balancer, or may have.
	Claimed bool `json:"claimed,omitempty"`
	// Annotations that the provider set; nil for those that it removed.
	Annotations map[string]*string `json:"annotations,omitempty"`
	// Finalizers that the provider added (true) or removed (false).
	Finalizers map[string]bool `json:"finalizers,omitempty"`
	// Conditions that the provider set, by type.
	Conditions map[string]metav1.Condition `json:"conditions,omitempty"`
}

// cleanupFinalizer is on every Service that the provider is called with, since the host adds it first, as upstream does.
const cleanupFinalizer = "service.kubernetes.io/load-balancer-cleanup"

// onto applies the provider's own changes to a Service, and returns it.
func (m mark) onto(service *v1.Service) *v1.Service {
	if !slices.Contains(service.Finalizers, cleanupFinalizer) {
		service.Finalizers = append(service.Finalizers, cleanupFinalizer)
	}
	for key, value := range m.Annotations {
		if value == nil {
			delete(service.Annotations, key)
		} else {
			service.Annotations[key] = *value
		}
	}
	for name, added := range m.Finalizers {
		switch at := slices.Index(service.Finalizers, name); {
		case added && at < 0:
			service.Finalizers = append(service.Finalizers, name)
		case !added && at >= 0:
			service.Finalizers = slices.Delete(service.Finalizers, at, at+1)
		}
	}
	slices.Sort(service.Finalizers)
	for _, condition := range m.Conditions {
		meta.SetStatusCondition(&service.Status.Conditions, condition)
	}
	slices.SortFunc(service.Status.Conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	return service
}

// after returns the mark after a provider has changed a Service.
func (m mark) after(before, now *v1.Service) mark {
	m.Annotations, m.Finalizers, m.Conditions = maps.Clone(m.Annotations), maps.Clone(m.Finalizers), nil
	for _, condition := range now.Status.Conditions {
		if m.Conditions == nil {
			m.Conditions = map[string]metav1.Condition{}
		}
		m.Conditions[condition.Type] = condition
	}
	if m.Annotations == nil {
		m.Annotations = map[string]*string{}
	}
	if m.Finalizers == nil {
		m.Finalizers = map[string]bool{}
	}
	for key, value := range now.Annotations {
		if old, there := before.Annotations[key]; !there || old != value {
			m.Annotations[key] = &value
		}
	}
	for key := range before.Annotations {
		if _, stays := now.Annotations[key]; !stays {
			m.Annotations[key] = nil
		}
	}
	for _, name := range now.Finalizers {
		if !slices.Contains(before.Finalizers, name) {
			m.Finalizers[name] = true
		}
	}
	for _, name := range before.Finalizers {
		if !slices.Contains(now.Finalizers, name) {
			m.Finalizers[name] = false
		}
	}
	return m
}

// told returns the annotations of a mark that the host writes on the real Service, and those that it removes.
func (m mark) told(prefixes []string) (set map[string]string, removed []string) {
	for key, value := range m.Annotations {
		switch {
		case !slices.ContainsFunc(prefixes, func(prefix string) bool {
			return prefix != "" && len(key) >= len(prefix) && key[:len(prefix)] == prefix
		}):
		case value == nil:
			removed = append(removed, key)
		default:
			if set == nil {
				set = map[string]string{}
			}
			set[key] = *value
		}
	}
	slices.Sort(removed)
	return set, removed
}

var conditionStatuses = map[metav1.ConditionStatus]pb.ConditionStatus{
	metav1.ConditionTrue: pb.ConditionStatus_CONDITION_STATUS_TRUE, metav1.ConditionFalse: pb.ConditionStatus_CONDITION_STATUS_FALSE,
}

// conditions returns the conditions of a mark that the host sets on the real Service.
func (m mark) conditions(types []string) (told []*pb.ServiceCondition) {
	for _, kind := range slices.Sorted(maps.Keys(m.Conditions)) {
		if slices.Contains(types, kind) {
			one := m.Conditions[kind]
			told = append(told, &pb.ServiceCondition{
				Type: kind, Status: conditionStatuses[one.Status], Reason: one.Reason, Message: one.Message,
			})
		}
	}
	return told
}

// writes reports whether an annotation has one of the prefixes that the provider writes.
func writes(prefixes []string, key string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return prefix != "" && strings.HasPrefix(key, prefix) })
}
