"""What a provider advertises, with the contract's defaults filled in."""

from dataclasses import dataclass

from google.protobuf.duration_pb2 import Duration

from cloudprovider_sdk import contract
from cloudprovider_sdk import proto as pb


@dataclass(frozen=True, slots=True)
class Advertised:
    """The response as it is sent, and the values in it that this package uses."""

    answer: pb.GetCapabilitiesResponse
    capabilities: frozenset[int]
    max_batch_instances: int
    max_batch_load_balancers: int
    max_batch_routes: int
    max_batch_volumes: int
    max_page_size: int
    max_message_bytes: int
    max_concurrent_reads: int
    max_concurrent_mutations: int
    bookmark_interval: float
    watch_max_age: float


def advertise(answer: pb.GetCapabilitiesResponse) -> Advertised:
    """Fill in the contract's defaults."""
    limits, intervals = answer.limits, answer.intervals
    return Advertised(
        answer=answer,
        capabilities=frozenset(answer.capabilities),
        max_batch_instances=limits.max_batch_instances or contract.MAX_BATCH,
        max_batch_load_balancers=limits.max_batch_load_balancers or contract.MAX_BATCH,
        max_batch_routes=limits.max_batch_routes or contract.MAX_BATCH,
        max_batch_volumes=limits.max_batch_volumes or contract.MAX_BATCH,
        max_page_size=limits.max_page_size or contract.MAX_PAGE_SIZE,
        max_message_bytes=limits.max_message_bytes or contract.MAX_MESSAGE_BYTES,
        max_concurrent_reads=limits.max_concurrent_reads or contract.MAX_CONCURRENT_READS,
        max_concurrent_mutations=limits.max_concurrent_mutations or contract.MAX_CONCURRENT_MUTATIONS,
        bookmark_interval=_seconds(intervals.bookmark_interval) or contract.BOOKMARK_INTERVAL_SECONDS,
        watch_max_age=_seconds(intervals.watch_max_age) or contract.WATCH_MAX_AGE_SECONDS,
    )


def _seconds(value: Duration) -> float:
    return value.ToTimedelta().total_seconds()
