package bridge

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/cloud-provider/api"
)

// nodeOf builds the Node that a provider reads.
func nodeOf(ref *pb.NodeRef) *v1.Node {
	node := &v1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{
			Name: ref.GetName(), UID: types.UID(ref.GetUid()), CreationTimestamp: timeOf(ref.GetCreationTime()),
			DeletionTimestamp: deletionOf(ref.GetDeletionTime()), Labels: copied(ref.GetLabels()), Annotations: copied(ref.GetAnnotations()),
		},
		Spec: v1.NodeSpec{ProviderID: ref.GetProviderId(), PodCIDRs: ref.GetPodCidrs(), Unschedulable: ref.GetUnschedulable()},
	}
	for _, taint := range ref.GetTaints() {
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: taint.GetKey(), Value: taint.GetValue(), Effect: taintEffects[taint.GetEffect()]})
	}
	if ready, known := readiness[ref.GetReadiness()]; known {
		node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: ready}}
	}
	if len(ref.GetPodCidrs()) > 0 {
		node.Spec.PodCIDR = ref.GetPodCidrs()[0]
	}
	if ips := ref.GetProvidedNodeIps(); len(ips) > 0 {
		node.Annotations[api.AnnotationAlphaProvidedIPAddr] = strings.Join(ips, ",")
	}
	node.Status.NodeInfo.SystemUUID = ref.GetSystemUuid()
	for _, address := range ref.GetAddresses() {
		if kind, known := addressTypes[address.GetType()]; known {
			node.Status.Addresses = append(node.Status.Addresses, v1.NodeAddress{Type: kind, Address: address.GetAddress()})
		}
	}
	return node
}

var taintEffects = map[pb.TaintEffect]v1.TaintEffect{
	pb.TaintEffect_TAINT_EFFECT_NO_SCHEDULE:        v1.TaintEffectNoSchedule,
	pb.TaintEffect_TAINT_EFFECT_PREFER_NO_SCHEDULE: v1.TaintEffectPreferNoSchedule,
	pb.TaintEffect_TAINT_EFFECT_NO_EXECUTE:         v1.TaintEffectNoExecute,
}

var readiness = map[pb.NodeReadiness]v1.ConditionStatus{
	pb.NodeReadiness_NODE_READINESS_READY:     v1.ConditionTrue,
	pb.NodeReadiness_NODE_READINESS_NOT_READY: v1.ConditionFalse,
}

var addressTypes = map[pb.NodeAddressType]v1.NodeAddressType{
	pb.NodeAddressType_NODE_ADDRESS_TYPE_HOSTNAME:     v1.NodeHostName,
	pb.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_IP:  v1.NodeInternalIP,
	pb.NodeAddressType_NODE_ADDRESS_TYPE_EXTERNAL_IP:  v1.NodeExternalIP,
	pb.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_DNS: v1.NodeInternalDNS,
	pb.NodeAddressType_NODE_ADDRESS_TYPE_EXTERNAL_DNS: v1.NodeExternalDNS,
}

// addressesOf returns a provider's addresses in its order, without duplicates and without unknown types.
func addressesOf(addresses []v1.NodeAddress) []*pb.NodeAddress {
	var out []*pb.NodeAddress
	seen := map[v1.NodeAddress]bool{}
	for _, address := range addresses {
		for ours, theirs := range addressTypes {
			if theirs == address.Type && !seen[address] {
				seen[address] = true
				out = append(out, &pb.NodeAddress{Type: ours, Address: address.Address})
			}
		}
	}
	return out
}

// cleanupFinalizer is on every Service that the provider is called with, since the host adds it first, as upstream does.
const cleanupFinalizer = "service.kubernetes.io/load-balancer-cleanup"

// serviceOf builds the Service that a provider reads.
func serviceOf(service *pb.Service) *v1.Service {
	out := &v1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.GetRef().GetNamespace(), Name: service.GetRef().GetName(),
			UID: types.UID(service.GetRef().GetUid()), CreationTimestamp: timeOf(service.GetCreationTime()),
			DeletionTimestamp: deletionOf(service.GetDeletionTime()), Finalizers: slices.Clone(service.GetFinalizers()),
			Labels: copied(service.GetLabels()), Annotations: copied(service.GetAnnotations()),
		},
		Spec: v1.ServiceSpec{
			Type:                          v1.ServiceTypeLoadBalancer,
			LoadBalancerIP:                service.GetLoadBalancerIp(),
			LoadBalancerSourceRanges:      specRanges(service),
			ClusterIPs:                    service.GetClusterIps(),
			ExternalIPs:                   service.GetExternalIps(),
			ExternalTrafficPolicy:         v1.ServiceExternalTrafficPolicyCluster,
			InternalTrafficPolicy:         new(v1.ServiceInternalTrafficPolicyCluster),
			HealthCheckNodePort:           service.GetHealthCheckNodePort(),
			SessionAffinity:               v1.ServiceAffinityNone,
			AllocateLoadBalancerNodePorts: service.AllocateNodePorts,
		},
	}
	if service.GetLoadBalancerClass() != "" {
		out.Spec.LoadBalancerClass = new(service.GetLoadBalancerClass())
	}
	if len(service.GetClusterIps()) > 0 {
		out.Spec.ClusterIP = service.GetClusterIps()[0]
	}
	if service.GetExternalTrafficPolicy() == pb.TrafficPolicy_TRAFFIC_POLICY_LOCAL {
		out.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal
	}
	if service.GetInternalTrafficPolicy() == pb.TrafficPolicy_TRAFFIC_POLICY_LOCAL {
		out.Spec.InternalTrafficPolicy = new(v1.ServiceInternalTrafficPolicyLocal)
	}
	if sticky := service.GetClientIpAffinity(); sticky != nil {
		out.Spec.SessionAffinity = v1.ServiceAffinityClientIP
		seconds := int32(sticky.AsDuration().Seconds())
		out.Spec.SessionAffinityConfig = &v1.SessionAffinityConfig{ClientIP: &v1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	if !slices.Contains(out.Finalizers, cleanupFinalizer) {
		out.Finalizers = append(out.Finalizers, cleanupFinalizer)
	}
	families(service, out)
	for _, port := range service.GetPorts() {
		out.Spec.Ports = append(out.Spec.Ports, portOf(port))
	}
	out.Status.LoadBalancer = statusOf(service.GetIngress())
	return out
}

func families(service *pb.Service, out *v1.Service) {
	for _, family := range service.GetIpFamilies() {
		switch family {
		case pb.IpFamily_IP_FAMILY_IPV4:
			out.Spec.IPFamilies = append(out.Spec.IPFamilies, v1.IPv4Protocol)
		case pb.IpFamily_IP_FAMILY_IPV6:
			out.Spec.IPFamilies = append(out.Spec.IPFamilies, v1.IPv6Protocol)
		}
	}
	policy := v1.IPFamilyPolicySingleStack
	switch service.GetIpFamilyPolicy() {
	case pb.IpFamilyPolicy_IP_FAMILY_POLICY_PREFER_DUAL_STACK:
		policy = v1.IPFamilyPolicyPreferDualStack
	case pb.IpFamilyPolicy_IP_FAMILY_POLICY_REQUIRE_DUAL_STACK:
		policy = v1.IPFamilyPolicyRequireDualStack
	}
	out.Spec.IPFamilyPolicy = &policy
}

var protocols = map[pb.Protocol]v1.Protocol{
	pb.Protocol_PROTOCOL_TCP: v1.ProtocolTCP, pb.Protocol_PROTOCOL_UDP: v1.ProtocolUDP, pb.Protocol_PROTOCOL_SCTP: v1.ProtocolSCTP,
}

func portOf(port *pb.ServicePort) v1.ServicePort {
	out := v1.ServicePort{
		Name: port.GetName(), Protocol: protocols[port.GetProtocol()], Port: port.GetPort(), NodePort: port.GetNodePort(),
		TargetPort: intstr.FromInt32(port.GetPort()),
	}
	if port.GetAppProtocol() != "" {
		out.AppProtocol = new(port.GetAppProtocol())
	}
	switch target := port.GetTargetPort().(type) {
	case *pb.ServicePort_TargetPortNumber:
		out.TargetPort = intstr.FromInt32(target.TargetPortNumber)
	case *pb.ServicePort_TargetPortName:
		out.TargetPort = intstr.FromString(target.TargetPortName)
	}
	return out
}

// statusOf builds the status that a provider reads.
func statusOf(ingress []*pb.LoadBalancerIngress) (out v1.LoadBalancerStatus) {
	for _, one := range ingress {
		way := v1.LoadBalancerIngress{IP: one.GetIp(), Hostname: one.GetHostname()}
		switch one.GetIpMode() {
		case pb.IngressIpMode_INGRESS_IP_MODE_VIP:
			way.IPMode = new(v1.LoadBalancerIPModeVIP)
		case pb.IngressIpMode_INGRESS_IP_MODE_PROXY:
			way.IPMode = new(v1.LoadBalancerIPModeProxy)
		}
		for _, port := range one.GetPorts() {
			status := v1.PortStatus{Port: port.GetPort(), Protocol: protocols[port.GetProtocol()]}
			if port.GetError() != "" {
				status.Error = new(port.GetError())
			}
			way.Ports = append(way.Ports, status)
		}
		out.Ingress = append(out.Ingress, way)
	}
	return out
}

// ingressOf returns a provider's ingress entries, except those without an address.
func ingressOf(status *v1.LoadBalancerStatus) []*pb.LoadBalancerIngress {
	var out []*pb.LoadBalancerIngress
	for _, one := range status.Ingress {
		if _, bad := netip.ParseAddr(one.IP); one.Hostname == "" && bad != nil {
			continue
		}
		ingress := &pb.LoadBalancerIngress{Ip: one.IP, Hostname: one.Hostname}
		if one.IPMode != nil && one.IP != "" {
			ingress.IpMode = pb.IngressIpMode_INGRESS_IP_MODE_VIP
			if *one.IPMode == v1.LoadBalancerIPModeProxy {
				ingress.IpMode = pb.IngressIpMode_INGRESS_IP_MODE_PROXY
			}
		}
		for _, port := range one.Ports {
			status := &pb.PortStatus{Port: port.Port}
			for ours, theirs := range protocols {
				if theirs == port.Protocol {
					status.Protocol = ours
				}
			}
			if port.Error != nil {
				status.Error = *port.Error
			}
			ingress.Ports = append(ingress.Ports, status)
		}
		out = append(out, ingress)
	}
	return out
}

// copied returns a copy that a provider may write to; never nil, since some providers do.
func copied(from map[string]string) map[string]string {
	out := make(map[string]string, len(from))
	maps.Copy(out, from)
	return out
}

func timeOf(time *timestamppb.Timestamp) metav1.Time {
	if time == nil {
		return metav1.Time{}
	}
	return metav1.NewTime(time.AsTime())
}

// deletionOf returns the deletion timestamp; nil if the object is not being deleted.
func deletionOf(time *timestamppb.Timestamp) *metav1.Time {
	if time == nil {
		return nil
	}
	return new(timeOf(time))
}

// specRanges are the source ranges of the spec. The host sends those of the annotation if it has none: some providers refuse
// ranges in both places, others look in the spec alone.
func specRanges(service *pb.Service) []string {
	if service.GetSourceRangesAreAnnotated() {
		return nil
	}
	return service.GetSourceRanges()
}
