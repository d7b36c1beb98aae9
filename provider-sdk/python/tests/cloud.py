"""A cloud whose instances and balancers behave as their names say."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

from cloudprovider_sdk import (
    Bookmark,
    Call,
    ChangeFeed,
    Instances,
    InstanceWatch,
    LoadBalancers,
    Provider,
    errors,
    main,
    results,
)
from cloudprovider_sdk import proto as pb

CANARY = "canary-hunter2"


class Cloud(Instances, LoadBalancers):
    def __init__(self) -> None:
        self.feed = ChangeFeed(capacity=2)
        self.calls: list[Call] = []
        self.began = self.finished = self.given_up = 0
        self.go = asyncio.Event()
        self.page_sizes: list[int] = []
        self.updated: list[list[str]] = []

    def provider(self, **more: Any) -> Provider:
        return Provider("test", provider_id_prefixes=["test://"], instances=self, load_balancers=self, **more)

    async def batch_get_instances(self, call: Call, request: pb.BatchGetInstancesRequest) -> pb.BatchGetInstancesResponse:
        self.calls.append(call)
        name = request.queries[0].node.name
        match name:
            case "broken":
                raise RuntimeError(f"password={CANARY}")
            case "ends the process":
                sys.exit(f"password={CANARY}")
            case "cancelled":
                flight = asyncio.ensure_future(asyncio.sleep(3600))
                flight.cancel(f"password={CANARY}")
                await flight
            case "nothing":
                return None  # type: ignore[return-value]
            case "throttled":
                raise errors.rate_limited(9) from OSError(f"token={CANARY}")
            case "slow cloud":
                raise TimeoutError
            case "hang":
                await self._hang()
            case "huge":
                return pb.BatchGetInstancesResponse(
                    results=[pb.InstanceResult(key=request.queries[0].key, instance=pb.Instance(name="x" * (5 << 20)))]
                )
            case "wrong keys":
                doubled, last = request.queries[0], request.queries[-1]
                foreign = pb.InstanceQuery(key="foreign")
                return pb.BatchGetInstancesResponse(
                    results=[results.absent(query) for query in (doubled, doubled, foreign, last)]
                )
        return pb.BatchGetInstancesResponse(results=[self._look_up(query) for query in request.queries])

    def _look_up(self, query: pb.InstanceQuery) -> pb.InstanceResult:
        if not query.node.name.startswith("down-"):
            return results.absent(query)
        error = errors.cloud_api_unavailable()
        error.__cause__ = OSError(f"{query.key} refused password={CANARY}")
        return results.unknown(query.key, error)

    async def _hang(self) -> None:
        self.began += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise

    async def watch_instances(self, call: Call, request: pb.WatchInstancesRequest) -> InstanceWatch:
        self.calls.append(call)
        match request.resume_token:
            case "expired":
                raise errors.resume_token_expired()
            case "broken":
                return InstanceWatch(_broken(), resumed=True)
            case "nothing":
                return None  # type: ignore[return-value]
            case "bookmark":
                return InstanceWatch(_bookmarks(), resumed=True)
        return self.feed.watch()

    async def list_instances(self, call: Call, request: pb.ListInstancesRequest) -> pb.ListInstancesResponse:
        self.page_sizes.append(request.page_size)
        return pb.ListInstancesResponse()

    async def get_load_balancer(self, call: Call, request: pb.GetLoadBalancerRequest) -> pb.GetLoadBalancerResponse:
        return pb.GetLoadBalancerResponse()

    async def ensure_load_balancer(self, call: Call, request: pb.EnsureLoadBalancerRequest) -> pb.EnsureLoadBalancerResponse:
        uid = request.service.ref.uid
        self.calls.append(call)
        self.began += 1
        if uid == "slow":
            await self.go.wait()
        if uid == "takes too long":
            raise TimeoutError
        if uid == "hangs in a thread":
            await asyncio.to_thread(threading.Event().wait)
        if uid == "nothing":
            return None  # type: ignore[return-value]
        if uid == "stubborn":
            await call.give_up.wait()
            self.given_up += 1
        self.finished += 1
        return pb.EnsureLoadBalancerResponse(load_balancer=pb.LoadBalancer(id=f"lb-{self.began}"))

    async def batch_update_load_balancers(
        self, call: Call, request: pb.BatchUpdateLoadBalancersRequest
    ) -> pb.BatchUpdateLoadBalancersResponse:
        uids = [item.service.ref.uid for item in request.items]
        self.updated.append(uids)
        if "slow" in uids:
            await self.go.wait()
        if "takes too long" in uids:
            raise TimeoutError
        answers = [pb.LoadBalancerUpdateResult(service_uid=uid, outcome=pb.UPDATE_OUTCOME_UPDATED) for uid in uids]
        return pb.BatchUpdateLoadBalancersResponse(results=answers)

    async def delete_load_balancer(self, call: Call, request: pb.DeleteLoadBalancerRequest) -> pb.DeleteLoadBalancerResponse:
        return pb.DeleteLoadBalancerResponse()

    async def list_load_balancers(self, call: Call, request: pb.ListLoadBalancersRequest) -> pb.ListLoadBalancersResponse:
        return pb.ListLoadBalancersResponse()


async def _broken() -> AsyncIterator[pb.InstanceChanged | Bookmark]:
    yield pb.InstanceChanged(provider_id="test://1")
    raise RuntimeError(f"password={CANARY}")


async def _bookmarks() -> AsyncIterator[pb.InstanceChanged | Bookmark]:
    yield Bookmark("token-7")
    await asyncio.Event().wait()


if __name__ == "__main__":
    main(lambda _: Cloud().provider())
