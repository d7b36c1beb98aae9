// Upstream's cloud controller manager over the mock, which it asks as a vendor's package asks its cloud: nodes and load
// balancers, one call for each. Kubernetes' own e2e specs run against it for comparison.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"cloudprovider.ccm/bench/peer/manager"
)

func main() {
	cloudprovider.RegisterCloudProvider("mock", func(io.Reader) (cloudprovider.Interface, error) { return dial() })
	manager.Run()
}

// cloud is the mock as upstream's interfaces show a cloud.
type cloud struct {
	instances pb.InstancesClient
	balancers pb.LoadBalancersClient
	cluster   *pb.ClusterRef
}

// dial reads where the mock is from MOCK_ADDRESS, and from MOCK_IDENTITY the files of a certificate that both sides know.
func dial() (*cloud, error) {
	identity, err := tls.LoadX509KeyPair(os.Getenv("MOCK_IDENTITY")+".crt", os.Getenv("MOCK_IDENTITY")+".key")
	if err != nil {
		return nil, err
	}
	// Whoever holds the key of this test is the mock.
	config := &tls.Config{Certificates: []tls.Certificate{identity}, InsecureSkipVerify: true}
	connection, err := grpc.NewClient(os.Getenv("MOCK_ADDRESS"), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		return nil, err
	}
	return &cloud{
		instances: pb.NewInstancesClient(connection),
		balancers: pb.NewLoadBalancersClient(connection),
		cluster:   &pb.ClusterRef{Uid: "upstream", Name: "kubernetes"},
	}, nil
}

func (c *cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (c *cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool)                  { return c, true }
func (c *cloud) Instances() (cloudprovider.Instances, bool)                        { return nil, false }
func (c *cloud) InstancesV2() (cloudprovider.InstancesV2, bool)                    { return c, true }
func (c *cloud) Zones() (cloudprovider.Zones, bool)                                { return nil, false }
func (c *cloud) Clusters() (cloudprovider.Clusters, bool)                          { return nil, false }
func (c *cloud) Routes() (cloudprovider.Routes, bool)                              { return nil, false }
func (c *cloud) ProviderName() string                                              { return "mock" }
func (c *cloud) HasClusterID() bool                                                { return true }

func (c *cloud) ask(ctx context.Context, node *v1.Node) (*pb.InstanceResult, error) {
	query := &pb.InstanceQuery{Key: node.Name, Node: reference(node)}
	request := &pb.BatchGetInstancesRequest{Cluster: c.cluster, Queries: []*pb.InstanceQuery{query}, View: pb.InstanceView_INSTANCE_VIEW_ALL}
	answer, err := c.instances.BatchGetInstances(ctx, request)
	if err != nil {
		return nil, err
	}
	if len(answer.Results) != 1 || answer.Results[0].Error != nil {
		return nil, fmt.Errorf("the mock answers about %s: %v", node.Name, answer)
	}
	return answer.Results[0], nil
}

func (c *cloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	result, err := c.ask(ctx, node)
	return result.GetState() != pb.InstanceState_INSTANCE_STATE_ABSENT, err
}

func (c *cloud) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	result, err := c.ask(ctx, node)
	return result.GetState() == pb.InstanceState_INSTANCE_STATE_STOPPED, err
}

func (c *cloud) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	result, err := c.ask(ctx, node)
	if err != nil {
		return nil, err
	}
	if result.State == pb.InstanceState_INSTANCE_STATE_ABSENT {
		return nil, cloudprovider.InstanceNotFound
	}
	instance := result.Instance
	metadata := &cloudprovider.InstanceMetadata{
		ProviderID: instance.ProviderId, InstanceType: instance.InstanceType, Zone: instance.Zone, Region: instance.Region,
	}
	kinds := map[pb.NodeAddressType]v1.NodeAddressType{
		pb.NodeAddressType_NODE_ADDRESS_TYPE_HOSTNAME:    v1.NodeHostName,
		pb.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_IP: v1.NodeInternalIP,
		pb.NodeAddressType_NODE_ADDRESS_TYPE_EXTERNAL_IP: v1.NodeExternalIP,
	}
	for _, address := range instance.Addresses {
		if kind, known := kinds[address.Type]; known {
			metadata.NodeAddresses = append(metadata.NodeAddresses, v1.NodeAddress{Type: kind, Address: address.Address})
		}
	}
	return metadata, nil
}

func (c *cloud) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

func (c *cloud) GetLoadBalancer(ctx context.Context, _ string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	answer, err := c.balancers.GetLoadBalancer(ctx, &pb.GetLoadBalancerRequest{Cluster: c.cluster, Service: name(service)})
	if err != nil {
		return nil, false, err
	}
	made := answer.LoadBalancer
	return status(made), made.GetState() != pb.LoadBalancerState_LOAD_BALANCER_STATE_ABSENT, nil
}

func (c *cloud) EnsureLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	backends := &pb.BackendSet{}
	for _, node := range nodes {
		backends.Nodes = append(backends.Nodes, reference(node))
	}
	backends.Digest = digest(backends)
	request := &pb.EnsureLoadBalancerRequest{Cluster: c.cluster, Fencing: &pb.Fencing{}, Service: spoken(service), Backends: backends}
	request.DesiredDigest = digest(request)
	answer, err := c.balancers.EnsureLoadBalancer(ctx, request)
	if err != nil {
		return nil, err
	}
	if answer.InProgress != nil {
		return nil, errors.New("the mock is not done yet")
	}
	return status(answer.LoadBalancer), nil
}

func (c *cloud) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) error {
	_, err := c.EnsureLoadBalancer(ctx, cluster, service, nodes)
	return err
}

func (c *cloud) EnsureLoadBalancerDeleted(ctx context.Context, _ string, service *v1.Service) error {
	request := &pb.DeleteLoadBalancerRequest{Cluster: c.cluster, Fencing: &pb.Fencing{}, Service: name(service), LastKnown: spoken(service)}
	answer, err := c.balancers.DeleteLoadBalancer(ctx, request)
	if err == nil && answer.InProgress != nil {
		err = errors.New("the mock is not done yet")
	}
	return err
}

func digest(message proto.Message) string {
	bytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		klog.Fatalf("no digest: %v", err)
	}
	sum := sha256.Sum256(bytes)
	return hex.EncodeToString(sum[:])
}

func name(service *v1.Service) *pb.ServiceRef {
	return &pb.ServiceRef{Namespace: service.Namespace, Name: service.Name, Uid: string(service.UID)}
}

func reference(node *v1.Node) *pb.NodeRef {
	return &pb.NodeRef{Name: node.Name, Uid: string(node.UID), ProviderId: node.Spec.ProviderID}
}

// spoken is the Service in the contract's words, as far as the mock's traffic depends on them.
func spoken(service *v1.Service) *pb.Service {
	spec := service.Spec
	said := &pb.Service{
		Ref: name(service), Annotations: service.Annotations, SourceRanges: spec.LoadBalancerSourceRanges,
		IpFamilies: []pb.IpFamily{pb.IpFamily_IP_FAMILY_IPV4}, HealthCheckNodePort: spec.HealthCheckNodePort,
		ExternalTrafficPolicy: pb.TrafficPolicy_TRAFFIC_POLICY_CLUSTER,
	}
	if spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal {
		said.ExternalTrafficPolicy = pb.TrafficPolicy_TRAFFIC_POLICY_LOCAL
	}
	if spec.SessionAffinity == v1.ServiceAffinityClientIP {
		said.ClientIpAffinity = durationpb.New(time.Duration(*spec.SessionAffinityConfig.ClientIP.TimeoutSeconds) * time.Second)
	}
	for _, port := range spec.Ports {
		protocol := pb.Protocol_PROTOCOL_TCP
		if port.Protocol == v1.ProtocolUDP {
			protocol = pb.Protocol_PROTOCOL_UDP
		}
		said.Ports = append(said.Ports, &pb.ServicePort{Name: port.Name, Protocol: protocol, Port: port.Port, NodePort: port.NodePort})
	}
	return said
}

func status(balancer *pb.LoadBalancer) *v1.LoadBalancerStatus {
	all := &v1.LoadBalancerStatus{}
	for _, ingress := range balancer.GetIngress() {
		mode := v1.LoadBalancerIPModeVIP
		if ingress.IpMode == pb.IngressIpMode_INGRESS_IP_MODE_PROXY {
			mode = v1.LoadBalancerIPModeProxy
		}
		all.Ingress = append(all.Ingress, v1.LoadBalancerIngress{IP: ingress.Ip, Hostname: ingress.Hostname, IPMode: &mode})
	}
	return all
}
