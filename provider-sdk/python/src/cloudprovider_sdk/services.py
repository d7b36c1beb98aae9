"""What a provider implements: a class for each service of the contract that its cloud has.

Requests go in and answers come out as the contract's own messages. Everything may raise, with one typed error (see `errors`),
and nothing turns an error into an empty answer. What is the same for every provider is done before a method is called
(who leads, shape of the arguments, revisions, page sizes) and after it (each key answered once): see the README.
"""

from abc import ABC, abstractmethod

from cloudprovider_sdk import errors
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.call import Call
from cloudprovider_sdk.watch import InstanceWatch


class CloudProvider(ABC):
    """Says how the provider is, in conditions. Without it, GetStatus answers none, which a host reads as "not known"."""

    @abstractmethod
    async def get_status(self, call: Call) -> pb.GetStatusResponse:
        """Return the conditions from memory: it is asked every minute and must not call the cloud."""


class Instances(ABC):
    """The machines behind the nodes."""

    @abstractmethod
    async def batch_get_instances(self, call: Call, request: pb.BatchGetInstancesRequest) -> pb.BatchGetInstancesResponse:
        """Read many instances at once.

        In: 1 to `Limits.max_batch_instances` queries, each with a unique key and a named node. Out: one result for each key,
        in any order. Existence is a state, never an error: answer an error for one query in its result (see `results`), and
        raise only when nothing could be asked. Answer ABSENT only after a look at the place that decides it.
        """

    async def watch_instances(self, call: Call, request: pb.WatchInstancesRequest) -> InstanceWatch:  # noqa: ARG002
        """Open a stream of changed instances. Optional; see `ChangeFeed` for a source that needs three lines.

        The started frame, heartbeats, the end at `Intervals.watch_max_age` and at a stop of the process are made around it.
        Raises `resume_token_expired` or `invalid_token` for `request.resume_token`; a token that was not honoured is answered
        INVALID_TOKEN for you.
        """
        raise errors.method_not_supported("WatchInstances")

    async def list_instances(
        self,
        call: Call,  # noqa: ARG002
        request: pb.ListInstancesRequest,  # noqa: ARG002
    ) -> pb.ListInstancesResponse:
        """Answer one page of this cluster's instances. Optional; see `Pager`.

        In: `page_size` is between 1 and `Limits.max_page_size`. What could not be queried stands in `unreachable`.
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
    """What stands before Services of type LoadBalancer. The natural key of a balancer is (cluster uid, service uid).

    A mutation runs to its end even when the caller is gone; it is cancelled when leadership ends. Of one key, only one runs
    at a time: the same call again joins it, another one is answered CONCURRENT_OPERATION. A revision below the highest
    accepted one is refused before a method is called.
    """

    @abstractmethod
    async def get_load_balancer(self, call: Call, request: pb.GetLoadBalancerRequest) -> pb.GetLoadBalancerResponse:
        """Read one balancer. Absence is LOAD_BALANCER_STATE_ABSENT, never an error."""

    @abstractmethod
    async def ensure_load_balancer(self, call: Call, request: pb.EnsureLoadBalancerRequest) -> pb.EnsureLoadBalancerResponse:
        """Make one balancer be as wanted. Idempotent: the same request again leaves one balancer and the same answer.

        Answer `in_progress` for what merely takes long. Store `desired_digest` with the balancer when it was applied wholly.
        Never take down what works because a later step failed.
        """

    @abstractmethod
    async def batch_update_load_balancers(
        self, call: Call, request: pb.BatchUpdateLoadBalancersRequest
    ) -> pb.BatchUpdateLoadBalancersResponse:
        """Give many balancers new backends; never make one.

        In: items with a unique service uid each, and an index of a set that is there; items with a stale revision, or of a
        Service on which something runs, were answered already and are not among them. Out: one result for each uid.
        """

    @abstractmethod
    async def delete_load_balancer(self, call: Call, request: pb.DeleteLoadBalancerRequest) -> pb.DeleteLoadBalancerResponse:
        """Remove the balancer of a Service with all that was made for it, from its natural key alone. Absence is OK."""

    @abstractmethod
    async def list_load_balancers(self, call: Call, request: pb.ListLoadBalancersRequest) -> pb.ListLoadBalancersResponse:
        """Answer one page of this cluster's balancers; see `Pager`."""


class Routes(ABC):
    """Routes that lead the pod CIDRs of nodes to the nodes. The natural key is (cluster uid, destination CIDR)."""

    @abstractmethod
    async def list_routes(self, call: Call, request: pb.ListRoutesRequest) -> pb.ListRoutesResponse:
        """Answer one page of this cluster's routes; see `Pager`."""

    @abstractmethod
    async def batch_ensure_routes(self, call: Call, request: pb.BatchEnsureRoutesRequest) -> pb.BatchEnsureRoutesResponse:
        """Make each destination lead to its target; replace a route with a wrong target. One result for each key."""

    @abstractmethod
    async def batch_delete_routes(self, call: Call, request: pb.BatchDeleteRoutesRequest) -> pb.BatchDeleteRoutesResponse:
        """Remove routes that were listed; one that was re-pointed since stays and is answered ROUTE_CHANGED."""


class Volumes(ABC):
    """Topology labels of volumes that no CSI driver manages."""

    @abstractmethod
    async def batch_get_volume_labels(
        self, call: Call, request: pb.BatchGetVolumeLabelsRequest
    ) -> pb.BatchGetVolumeLabelsResponse:
        """Read the labels of many volumes. One result for each key, in any order."""


class Clusters(ABC):
    """Which clusters the cloud hosts, and where their control planes are."""

    @abstractmethod
    async def list_clusters(self, call: Call, request: pb.ListClustersRequest) -> pb.ListClustersResponse:
        """Answer one page of the clusters of the account; see `Pager`."""

    @abstractmethod
    async def get_control_plane_endpoint(
        self, call: Call, request: pb.GetControlPlaneEndpointRequest
    ) -> pb.GetControlPlaneEndpointResponse:
        """Return where the apiserver of a cluster is. Raises `cluster_not_found`."""
