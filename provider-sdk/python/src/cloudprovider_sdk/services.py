"""The classes that a provider implements, one for each service of the contract.

Requests and responses are the contract's own messages. Every method may raise, always the one typed error (see `errors`),
and must not turn an error into an empty response. The SDK does what is the same for every provider before a method is called
(leadership, the shape of requests, revisions, page sizes) and after it (one result for each key): see the README.
"""

from abc import ABC, abstractmethod

from cloudprovider_sdk import errors
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.call import Call
from cloudprovider_sdk.watch import InstanceWatch


class CloudProvider(ABC):
    """Reports the provider's conditions. Without it, GetStatus returns none, which a host reads as "not known"."""

    @abstractmethod
    async def get_status(self, call: Call) -> pb.GetStatusResponse:
        """Return the conditions from memory: the host asks every minute, and this must not call the cloud."""


class Instances(ABC):
    """The instances behind the nodes."""

    @abstractmethod
    async def batch_get_instances(self, call: Call, request: pb.BatchGetInstancesRequest) -> pb.BatchGetInstancesResponse:
        """Read many instances at once.

        In: 1 to `Limits.max_batch_instances` queries, each with a unique key and a node's name. Out: one result for each key,
        in any order. Existence is a state, never an error: return an error for one query in its result (see `results`), and
        raise only if no query could be answered. Return ABSENT only after looking in the system of record.
        """

    async def watch_instances(self, call: Call, request: pb.WatchInstancesRequest) -> InstanceWatch:  # noqa: ARG002
        """Open a stream of changed instances. Optional; `ChangeFeed` makes it three lines.

        The SDK adds the started frame and heartbeats, and ends the stream at `Intervals.watch_max_age` or when the process
        stops. Raises `resume_token_expired` or `invalid_token` for `request.resume_token`; for a token that the watch has
        not honoured, the SDK answers INVALID_TOKEN.
        """
        raise errors.method_not_supported("WatchInstances")

    async def list_instances(
        self,
        call: Call,  # noqa: ARG002
        request: pb.ListInstancesRequest,  # noqa: ARG002
    ) -> pb.ListInstancesResponse:
        """Return one page of this cluster's instances. Optional; see `page`.

        In: `page_size` is between 1 and `Limits.max_page_size`. Report locations that could not be queried in `unreachable`.
        """
        raise errors.method_not_supported("ListInstances")

    async def add_ssh_key_to_all_instances(
        self,
        call: Call,  # noqa: ARG002
        request: pb.AddSshKeyToAllInstancesRequest,  # noqa: ARG002
    ) -> pb.AddSshKeyToAllInstancesResponse:
        """Make a public key valid on all instances of this cluster. Optional. Raises `invalid_ssh_key`."""
        raise errors.method_not_supported("AddSshKeyToAllInstances")


class LoadBalancers(ABC):
    """The load balancers of Services of type LoadBalancer. The natural key of a balancer is (cluster uid, service uid).

    A mutation runs to its end even if the caller disconnects; it is cancelled when its term ends. Only one runs at a time
    for each key: an identical call joins it, any other gets CONCURRENT_OPERATION. A revision below the highest
    accepted one is refused before a method is called.
    """

    @abstractmethod
    async def get_load_balancer(self, call: Call, request: pb.GetLoadBalancerRequest) -> pb.GetLoadBalancerResponse:
        """Read one balancer. Absence is LOAD_BALANCER_STATE_ABSENT, never an error."""

    @abstractmethod
    async def ensure_load_balancer(self, call: Call, request: pb.EnsureLoadBalancerRequest) -> pb.EnsureLoadBalancerResponse:
        """Create or change one balancer as requested. Idempotent: repetition leaves one balancer and returns the same answer.

        Return `in_progress` for work that merely takes long. Store `desired_digest` with the balancer once all is applied.
        Never take down what works because a later step has failed.
        """

    @abstractmethod
    async def batch_update_load_balancers(
        self, call: Call, request: pb.BatchUpdateLoadBalancersRequest
    ) -> pb.BatchUpdateLoadBalancersResponse:
        """Give many balancers new backends; never create one.

        In: items with a unique service uid each, and the set of backends that all of them get. The SDK has already answered
        items with a stale revision, or of a busy Service; they are not in the request. Out: one result for each uid.
        """

    @abstractmethod
    async def delete_load_balancer(self, call: Call, request: pb.DeleteLoadBalancerRequest) -> pb.DeleteLoadBalancerResponse:
        """Delete the balancer of a Service and everything created for it, by its natural key alone. Absence is OK."""

    @abstractmethod
    async def list_load_balancers(self, call: Call, request: pb.ListLoadBalancersRequest) -> pb.ListLoadBalancersResponse:
        """Return one page of this cluster's balancers; see `page`."""


class Routes(ABC):
    """Routes from the nodes' pod CIDRs to the nodes. The natural key is (cluster uid, destination CIDR)."""

    @abstractmethod
    async def list_routes(self, call: Call, request: pb.ListRoutesRequest) -> pb.ListRoutesResponse:
        """Return one page of this cluster's routes; see `page`."""

    @abstractmethod
    async def batch_ensure_routes(self, call: Call, request: pb.BatchEnsureRoutesRequest) -> pb.BatchEnsureRoutesResponse:
        """Make each destination lead to its target; replace a route with a wrong target. One result for each key."""

    @abstractmethod
    async def batch_delete_routes(self, call: Call, request: pb.BatchDeleteRoutesRequest) -> pb.BatchDeleteRoutesResponse:
        """Delete listed routes; one whose target has changed since stays, with the result ROUTE_CHANGED."""


class Volumes(ABC):
    """Topology labels of volumes that no CSI driver manages."""

    @abstractmethod
    async def batch_get_volume_labels(
        self, call: Call, request: pb.BatchGetVolumeLabelsRequest
    ) -> pb.BatchGetVolumeLabelsResponse:
        """Return the labels of many volumes. One result for each key, in any order."""


class Clusters(ABC):
    """The clusters that the cloud hosts, and their control planes' addresses."""

    @abstractmethod
    async def list_clusters(self, call: Call, request: pb.ListClustersRequest) -> pb.ListClustersResponse:
        """Return one page of the account's clusters; see `page`."""

    @abstractmethod
    async def get_control_plane_endpoint(
        self, call: Call, request: pb.GetControlPlaneEndpointRequest
    ) -> pb.GetControlPlaneEndpointResponse:
        """Return the address of a cluster's apiserver. Raises `cluster_not_found`."""
