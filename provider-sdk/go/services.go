package sdk

import (
	"context"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// Instances are the instances behind the nodes. The optional interfaces of a value (InstanceWatcher, InstanceLister,
// SSHKeyAdder) are detected by its methods, served and advertised.
type Instances interface {
	// BatchGetInstances reads many instances at once.
	//
	// In: 1 to Limits.max_batch_instances queries, each with a unique key and a node's name. Out: one result for each key, in
	// any order. Existence is a state, never an error: return an error for one query in its result (Unknown), and fail the
	// call only if no query could be answered. Return ABSENT (Absent) only after looking in the system of record.
	BatchGetInstances(context.Context, *pb.BatchGetInstancesRequest) (*pb.BatchGetInstancesResponse, error)
}

// InstanceWatcher is the optional part of Instances behind CAPABILITY_INSTANCES_WATCH.
type InstanceWatcher interface {
	// WatchInstances opens a stream of changed instances, which lives as long as its context.
	//
	// The provider sends changes, and tokens if it can resume. The SDK adds the started frame and the heartbeat at
	// Intervals.bookmark_interval, and ends the stream at Intervals.watch_max_age or when the process stops.
	// ChangeFeed makes it three lines. Errors: fault.ResumeTokenExpired, fault.InvalidToken.
	WatchInstances(context.Context, *pb.WatchInstancesRequest) (*Watch, error)
}

// InstanceLister is the optional part of Instances behind CAPABILITY_INSTANCES_LIST.
type InstanceLister interface {
	// ListInstances returns one page of this cluster's instances.
	//
	// In: page_size is between 1 and Limits.max_page_size. Report locations that could not be queried in unreachable. Errors:
	// fault.InvalidToken.
	ListInstances(context.Context, *pb.ListInstancesRequest) (*pb.ListInstancesResponse, error)
}

// SSHKeyAdder is the optional part of Instances behind CAPABILITY_SSH_KEYS.
type SSHKeyAdder interface {
	// AddSshKeyToAllInstances makes a public key valid on all instances of this cluster. A mutation. Errors:
	// fault.InvalidSSHKey.
	AddSshKeyToAllInstances(context.Context, *pb.AddSshKeyToAllInstancesRequest) (*pb.AddSshKeyToAllInstancesResponse, error)
}

// LoadBalancers manages the load balancers of Services of type LoadBalancer. The natural key of a load balancer is
// (cluster uid, service uid).
//
// Mutations finish even if the caller disconnects, unless their leader's term ends: their context is not cancelled with the
// call, and its deadline is the contract's longest, not the caller's (which CallFrom returns). They run one at a time for
// each key: an identical one joins the running one, any other fails with CONCURRENT_OPERATION. The SDK refuses a revision
// lower than the highest accepted one of the same key before it calls a method.
type LoadBalancers interface {
	// GetLoadBalancer reads one balancer. Absence is LOAD_BALANCER_STATE_ABSENT, never an error.
	GetLoadBalancer(context.Context, *pb.GetLoadBalancerRequest) (*pb.GetLoadBalancerResponse, error)
	// EnsureLoadBalancer creates or changes one balancer as requested. Repetition leaves one balancer and returns the same
	// answer.
	//
	// Return in_progress for work that merely takes long. Store desired_digest with the balancer once everything is applied.
	// Never take down what works because a later step has failed. Other requests with the same backend set share the backends:
	// treat them as read-only.
	EnsureLoadBalancer(context.Context, *pb.EnsureLoadBalancerRequest) (*pb.EnsureLoadBalancerResponse, error)
	// BatchUpdateLoadBalancers gives many balancers new backends; it never creates one.
	//
	// In: items with a unique service uid each, and the set of backends that all of them get, which is shared as above. The SDK
	// has already answered items with a stale revision, or of a busy Service; they are not in the request. Out: one result for
	// each service uid.
	BatchUpdateLoadBalancers(context.Context, *pb.BatchUpdateLoadBalancersRequest) (*pb.BatchUpdateLoadBalancersResponse, error)
	// DeleteLoadBalancer deletes the balancer of a Service and everything created for it, by its natural key alone. Absence
	// is OK.
	DeleteLoadBalancer(context.Context, *pb.DeleteLoadBalancerRequest) (*pb.DeleteLoadBalancerResponse, error)
	// ListLoadBalancers returns one page of this cluster's balancers. In: page_size is between 1 and Limits.max_page_size.
	ListLoadBalancers(context.Context, *pb.ListLoadBalancersRequest) (*pb.ListLoadBalancersResponse, error)
}

// Routes manages the routes of the nodes' pod CIDRs. The natural key of a route is (cluster uid, destination CIDR).
// Mutations finish even if the caller disconnects.
type Routes interface {
	// ListRoutes returns one page of this cluster's routes. In: page_size is between 1 and Limits.max_page_size.
	ListRoutes(context.Context, *pb.ListRoutesRequest) (*pb.ListRoutesResponse, error)
	// BatchEnsureRoutes makes each destination lead to its target, and replaces a route with a wrong target. In: items with
	// unique keys and destinations. Out: one result for each key.
	BatchEnsureRoutes(context.Context, *pb.BatchEnsureRoutesRequest) (*pb.BatchEnsureRoutesResponse, error)
	// BatchDeleteRoutes deletes listed routes; one whose target has changed since stays, with the result ROUTE_CHANGED.
	// In: items with unique keys. Out: one result for each key.
	BatchDeleteRoutes(context.Context, *pb.BatchDeleteRoutesRequest) (*pb.BatchDeleteRoutesResponse, error)
}

// Volumes returns the topology labels of volumes that no CSI driver manages.
type Volumes interface {
	// BatchGetVolumeLabels reads the labels of many volumes. In: 1 to Limits.max_batch_volumes queries with unique keys. Out:
	// one result for each key.
	BatchGetVolumeLabels(context.Context, *pb.BatchGetVolumeLabelsRequest) (*pb.BatchGetVolumeLabelsResponse, error)
}

// Clusters lists the clusters that the cloud hosts.
type Clusters interface {
	// ListClusters returns one page of the account's clusters. In: page_size is between 1 and Limits.max_page_size.
	ListClusters(context.Context, *pb.ListClustersRequest) (*pb.ListClustersResponse, error)
	// GetControlPlaneEndpoint returns the address of a cluster's apiserver. Errors: fault.ClusterNotFound.
	GetControlPlaneEndpoint(context.Context, *pb.GetControlPlaneEndpointRequest) (*pb.GetControlPlaneEndpointResponse, error)
}

// StatusReporter reports the provider's status in conditions. Without one, GetStatus returns none, which the host reads as
// "not known".
type StatusReporter interface {
	// GetStatus answers from memory: the host asks every minute, and this must not call the cloud.
	GetStatus(context.Context, *pb.GetStatusRequest) (*pb.GetStatusResponse, error)
}
