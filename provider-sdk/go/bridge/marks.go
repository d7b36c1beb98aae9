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

// mark is what the provider wrote to a Service, if there is no real Service to write to. The bridge remembers it for as long
// as the Service has a load balancer, whichever host leads.
type mark struct {
	// annotations that the provider set; nil for those that it removed.
	annotations map[string]*string
	// finalizers that the provider added (true) or removed (false).
	finalizers map[string]bool
	// conditions that the provider set, by type.
	conditions map[string]metav1.Condition
}

// finalizersKey is the annotation in which the host keeps the finalizers that the provider added to a Service: the host
// writes no foreign finalizers, and a provider may delete nothing for a Service without its own.
const finalizersKey = "bridge.cloudprovider.ccm/finalizers"

// cleanupFinalizer is on every Service that the provider is called with, since the host adds it first, as upstream does.
const cleanupFinalizer = "service.kubernetes.io/load-balancer-cleanup"

// onto applies the provider's own changes to a Service, and returns it.
func (m mark) onto(service *v1.Service) *v1.Service {
	for name := range strings.SplitSeq(service.Annotations[finalizersKey], ",") {
		if name != "" && !slices.Contains(service.Finalizers, name) {
			service.Finalizers = append(service.Finalizers, name)
		}
	}
	delete(service.Annotations, finalizersKey)
	if !slices.Contains(service.Finalizers, cleanupFinalizer) {
		service.Finalizers = append(service.Finalizers, cleanupFinalizer)
	}
	for key, value := range m.annotations {
		if value == nil {
			delete(service.Annotations, key)
		} else {
			service.Annotations[key] = *value
		}
	}
	for name, added := range m.finalizers {
		switch at := slices.Index(service.Finalizers, name); {
		case added && at < 0:
			service.Finalizers = append(service.Finalizers, name)
		case !added && at >= 0:
			service.Finalizers = slices.Delete(service.Finalizers, at, at+1)
		}
	}
	slices.Sort(service.Finalizers)
	for _, condition := range m.conditions {
		meta.SetStatusCondition(&service.Status.Conditions, condition)
	}
	slices.SortFunc(service.Status.Conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	return service
}

// after returns the mark after a provider has changed a Service.
func (m mark) after(before, now *v1.Service) mark {
	m.annotations, m.finalizers, m.conditions = maps.Clone(m.annotations), maps.Clone(m.finalizers), nil
	for _, condition := range now.Status.Conditions {
		if m.conditions == nil {
			m.conditions = map[string]metav1.Condition{}
		}
		m.conditions[condition.Type] = condition
	}
	if m.annotations == nil {
		m.annotations = map[string]*string{}
	}
	if m.finalizers == nil {
		m.finalizers = map[string]bool{}
	}
	for key, value := range now.Annotations {
		if old, there := before.Annotations[key]; !there || old != value {
			m.annotations[key] = &value
		}
	}
	for key := range before.Annotations {
		if _, stays := now.Annotations[key]; !stays {
			m.annotations[key] = nil
		}
	}
	for _, name := range now.Finalizers {
		if !slices.Contains(before.Finalizers, name) {
			m.finalizers[name] = true
		}
	}
	for _, name := range before.Finalizers {
		if !slices.Contains(now.Finalizers, name) {
			m.finalizers[name] = false
		}
	}
	return m
}

// told returns the annotations that the host writes on the real Service, and those that it removes.
func (m mark) told(prefixes []string, service *pb.Service) (set map[string]string, removed []string) {
	set = map[string]string{}
	for key, value := range m.annotations {
		switch {
		case !writes(prefixes, key):
		case value == nil:
			removed = append(removed, key)
		default:
			set[key] = *value
		}
	}
	before := service.GetAnnotations()[finalizersKey]
	switch now := m.ownFinalizers(before); {
	case now == before:
	case now == "":
		removed = append(removed, finalizersKey)
	default:
		set[finalizersKey] = now
	}
	slices.Sort(removed)
	return set, removed
}

// ownFinalizers returns the annotation of the finalizers that the provider has added, given its former value.
func (m mark) ownFinalizers(before string) string {
	names := strings.FieldsFunc(before, func(r rune) bool { return r == ',' })
	for name, added := range m.finalizers {
		names = slices.DeleteFunc(names, func(one string) bool { return one == name })
		if added {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

var conditionStatuses = map[metav1.ConditionStatus]pb.ConditionStatus{
	metav1.ConditionTrue: pb.ConditionStatus_CONDITION_STATUS_TRUE, metav1.ConditionFalse: pb.ConditionStatus_CONDITION_STATUS_FALSE,
}

// conditionsTold returns the conditions that the host sets on the real Service.
func (m mark) conditionsTold(types []string) (told []*pb.ServiceCondition) {
	for _, kind := range slices.Sorted(maps.Keys(m.conditions)) {
		if slices.Contains(types, kind) {
			one := m.conditions[kind]
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

// isLost reports whether a provider changed annotations that the host does not write to the real Service.
func (m mark) isLost(prefixes []string) bool {
	for key := range m.annotations {
		if !writes(prefixes, key) {
			return true
		}
	}
	return false
}
