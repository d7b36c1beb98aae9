"""Leaders: whose mutations run, and until when; and background work while somebody leads."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cloud import Cloud
from fixture import CLUSTER, FAR, ZERO, Clients, batch, clients, delete, ensure, lead, refused, served, serving, until
from google.protobuf.duration_pb2 import Duration
from vectors import rows

from cloudprovider_sdk import Provider, ProviderError
from cloudprovider_sdk import proto as pb
from cloudprovider_sdk.checks import Leadership, Term
from cloudprovider_sdk.provider import WhileLeading
from cloudprovider_sdk.server import background

LONG = 10.0


def lasting(seconds: float) -> Duration:
    duration = Duration()
    duration.FromTimedelta(timedelta(seconds=seconds))
    return duration


def leader(scope: str, epoch: int) -> pb.Fencing:
    return pb.Fencing(scope=scope, epoch=epoch)


class Bench(Leadership):
    """A Leadership of one cluster, with the clock of a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.now = 0.0
        loop = asyncio.get_running_loop()
        start = loop.time()
        monkeypatch.setattr(loop, "time", lambda: start + self.now)

    async def advance(self, seconds: float) -> None:
        self.now += seconds
        for _ in range(3):
            await asyncio.sleep(0)

    def led(self, leader: pb.Fencing, valid_for: float | None = LONG) -> Term:
        term = self.hear("c", leader, valid_for)
        assert term is not None, "no term begins"
        return term

    def stale(self, ask: Callable[[], object]) -> bool:
        try:
            ask()
        except ProviderError as error:
            return error.reason == pb.ERROR_REASON_STALE_LEADER
        return False

    def may(self, caller: pb.Fencing, cluster: str = "c") -> bool:
        return not self.stale(lambda: self.term(cluster, caller))


async def test_who_leads_is_told_as_in_every_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    for row in rows("leadership"):
        await bench.advance(row["at"] - bench.now)
        cluster, told = row.get("cluster", "c-1"), row.get("lead") or row["mutate"]
        who = leader(told["scope"], int(told["epoch"]))
        hear = partial(bench.hear, cluster, who, row.get("valid_for"))
        assert bench.stale(hear if "lead" in row else partial(bench.term, cluster, who)) == row["refused"], row


async def test_only_the_present_leader_may_change_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """[R:lead-needed]."""
    bench = Bench(monkeypatch)
    assert bench.term("c", leader("", 0)) is None, "leader election is off"
    assert not bench.may(leader("lease", 1)), "nobody led yet"
    term = bench.led(leader("lease", 1))
    assert bench.term("c", leader("lease", 1)) is term
    for other in (leader("", 0), leader("lease", 0), leader("lease", 2), leader("other", 1)):
        assert not bench.may(other), other
    assert bench.may(leader("", 0), cluster="d")
    # A process that was paused this long checks the clock first.
    bench.now += LONG + 1
    for anybody in (leader("lease", 1), leader("", 0)):
        assert not bench.may(anybody), "nobody leads any more"


async def test_a_former_leader_never_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """[R:lead-takes-over]."""
    bench = Bench(monkeypatch)
    first = bench.led(leader("lease", 1))
    second = bench.led(leader("lease", 2))
    assert first.over
    assert bench.stale(lambda: bench.hear("c", leader("", 0), None)), "it was not elected"
    assert bench.stale(lambda: bench.hear("c", leader("lease", 1), LONG))
    assert bench.hear("c", leader("lease", 2), LONG) is None, "renewed, not begun anew"
    bench.led(leader("new lease", 1))
    assert second.over
    assert bench.stale(lambda: bench.hear("c", leader("lease", 3), LONG))


async def test_a_term_ends_in_time_or_at_a_word_and_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """[R:lead-ends]."""
    bench = Bench(monkeypatch)
    term = bench.led(leader("lease", 1))
    await bench.advance(6)
    assert bench.hear("c", leader("lease", 1), LONG) is None
    await bench.advance(9)
    assert not term.ended.done()
    await bench.advance(1)
    assert term.ended.done()
    again = bench.led(leader("lease", 1))
    assert bench.hear("c", leader("lease", 1), 0) is None
    assert again.ended.done()
    assert not bench.may(leader("lease", 1))
    assert bench.hear("c", leader("lease", 1), -1) is None, "nothing begins with a step down"


async def test_without_leader_election_a_term_ends_when_somebody_else_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """[R:lead-ends]."""
    bench = Bench(monkeypatch)
    term = bench.led(leader("", 0), None)
    await bench.advance(1e6)
    assert bench.may(leader("", 0))
    bench.led(leader("lease", 1))
    assert term.ended.done()
    assert not bench.may(leader("", 0))


@pytest.mark.parametrize(
    ("first", "then"),
    [(0.3, None), (600, (1, ZERO)), (600, (2, FAR))],
    ids=["time", "stepping down", "a new leader"],
)
async def test_a_mutation_is_given_up_when_leadership_ends(
    tmp_path: Path, first: float, then: tuple[int, Duration] | None
) -> None:
    """[R:lead-ends]."""
    cloud = Cloud()
    async with served(cloud.provider(), tmp_path) as there:
        # On a busy machine the first may end before the mutation begins.
        for seconds in (first, 10 * first, 50 * first):
            await lead(there, 1, lasting(seconds))
            call = there.load_balancers.EnsureLoadBalancer(ensure("slow", epoch=1))
            await until(lambda call=call: cloud.began == 1 or call.done())  # type: ignore[misc]
            if cloud.began:
                break
        if then is not None:
            await lead(there, *then)
        assert (await refused(call)).reason == pb.ERROR_REASON_STALE_LEADER
        assert cloud.calls[0].give_up.is_set(), "threads of its own are told, too"
        cloud.go.set()
        await there.instances.BatchGetInstances(batch("fine"))
        assert not cloud.finished, "no further call of the cloud"


async def test_what_a_mutation_left_behind_is_told_when_leadership_ends(tmp_path: Path) -> None:
    """[R:lead-ends]: as what goes on after an answer with `in_progress`."""
    cloud = Cloud()
    async with served(cloud.provider(), tmp_path) as there:
        await lead(there, 1, FAR)
        await there.load_balancers.EnsureLoadBalancer(ensure("a", epoch=1))
        told = cloud.calls[0].give_up
        assert not told.is_set(), "its leader leads"
        await lead(there, 1, ZERO)
        assert told.is_set()


async def test_a_mutation_whose_caller_is_gone_is_given_up_too(tmp_path: Path) -> None:
    """[R:lead-ends]."""
    cloud = Cloud()
    async with serving(cloud.provider(), tmp_path) as it, it.channel() as channel:
        there = clients(channel)
        await lead(there, 1, FAR)
        call = there.load_balancers.EnsureLoadBalancer(ensure("slow", epoch=1))
        await until(lambda: cloud.began == 1)
        call.cancel()
        await until(cloud.calls[0].caller_gone.is_set)
        await lead(there, 2, FAR)
        await until(lambda: not it.provider.lifecycle.mutations)
        assert not cloud.finished


async def test_a_new_leader_never_joins_what_a_former_one_began(tmp_path: Path) -> None:
    """[R:lead-ends]."""
    cloud = Cloud()
    async with served(cloud.provider(), tmp_path) as there:
        await lead(there, 1, FAR)
        former = there.load_balancers.EnsureLoadBalancer(ensure("slow", epoch=1))
        await until(lambda: cloud.began == 1)
        await lead(there, 2, FAR)
        cloud.go.set()
        answer = await there.load_balancers.EnsureLoadBalancer(ensure("slow", epoch=2))
        assert answer.load_balancer.id == "lb-2"
        assert (await refused(former)).reason == pb.ERROR_REASON_STALE_LEADER


async def test_who_does_not_lead_is_refused_before_the_arguments_are_looked_at(tmp_path: Path) -> None:
    """[R:lead-needed]."""
    async with served(Cloud().provider(), tmp_path) as there:
        await there.load_balancers.EnsureLoadBalancer(ensure("a"))
        malformed = pb.DeleteLoadBalancerRequest(cluster=CLUSTER, fencing=leader("lease", 1))
        error = await refused(there.load_balancers.DeleteLoadBalancer(malformed))
        assert error.reason == pb.ERROR_REASON_STALE_LEADER
        nameless = pb.DeleteLoadBalancerRequest(cluster=pb.ClusterRef(name="prod"), fencing=leader("lease", 1))
        error = await refused(there.load_balancers.DeleteLoadBalancer(nameless))
        assert error.reason == pb.ERROR_REASON_INVALID_ARGUMENT_SHAPE
        await lead(there, 1, FAR)
        error = await refused(there.load_balancers.DeleteLoadBalancer(malformed))
        assert error.reason == pb.ERROR_REASON_INVALID_ARGUMENT_SHAPE
        error = await refused(there.load_balancers.DeleteLoadBalancer(delete("a")))
        assert error.reason == pb.ERROR_REASON_STALE_LEADER
        await there.instances.BatchGetInstances(batch("fine"))


async def test_leadership_ends_by_the_providers_clock(tmp_path: Path) -> None:
    """[R:lead-ends]: a call that is read late, as by a process that stood still, does not count from then."""

    async def lead_until(there: Clients, until: Duration | None) -> Duration:
        fencing = pb.Fencing(scope="lease", epoch=1)
        request = pb.LeadRequest(cluster=CLUSTER, fencing=fencing, valid_for=FAR, valid_until=until)
        answer = await there.base.Lead(request)
        assert answer.HasField("heard_at")
        return answer.heard_at

    async with served(Cloud().provider(), tmp_path) as there:
        clock = await lead_until(there, None)
        later = await lead_until(there, Duration(seconds=clock.seconds + 600))
        assert later.ToNanoseconds() >= clock.ToNanoseconds()
        await there.load_balancers.EnsureLoadBalancer(ensure("a", epoch=1))
        await lead_until(there, later)
        call = there.load_balancers.EnsureLoadBalancer(ensure("a", epoch=1))
        assert (await refused(call)).reason == pb.ERROR_REASON_STALE_LEADER


async def test_background_work_runs_while_somebody_leads(tmp_path: Path) -> None:
    """[R:lead-ends]."""
    began = running = 0

    async def work(of: pb.ClusterRef) -> None:
        nonlocal began, running
        assert of == CLUSTER
        began, running = began + 1, running + 1
        try:
            await asyncio.Event().wait()
        finally:
            running -= 1

    async with serving(Cloud().provider(while_leading=work), tmp_path) as it, it.channel() as channel:
        there = clients(channel)
        for epoch, valid_for, wanted in [
            (1, FAR, (1, 1)),
            (1, FAR, (1, 1)),
            (2, None, (2, 1)),
            (2, ZERO, (2, 0)),
        ]:
            await lead(there, epoch, valid_for)
            await until(lambda wanted=wanted: (began, running) == wanted)  # type: ignore[misc]
        # On a busy machine the first may end before the work begins.
        for seconds in (0.2, 2, 10):
            await lead(there, 2, lasting(seconds))
            await until(lambda: began == 3 or not it.provider.lifecycle.terms)
            if began == 3:
                break
        assert began == 3
        await until(lambda: not running)
        await lead(there, 3, FAR)
        await until(lambda: bool(running))
    assert not running, "a stop ends it, and waits for it"


async def _fails(_: pb.ClusterRef) -> None:
    raise RuntimeError("no cloud")


def _fails_to_begin(_: pb.ClusterRef) -> Coroutine[Any, Any, None]:
    raise RuntimeError("no settings")


async def _waits_for_what_was_cancelled(_: pb.ClusterRef) -> None:
    shared = asyncio.ensure_future(asyncio.Event().wait())
    shared.cancel()
    await shared


@pytest.mark.parametrize("work", [_fails, _fails_to_begin, _waits_for_what_was_cancelled])
async def test_background_work_that_fails_runs_again_within_its_term(
    work: WhileLeading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(background, "_LONGEST_PAUSE", 0.02)

    def failures() -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.exc_info]

    async with served(Cloud().provider(while_leading=work), tmp_path) as there:
        await lead(there, 1, FAR)
        await until(lambda: len(failures()) >= 3)
        assert [record.args for record in failures()[:3]] == [(0.01,), (0.02,), (0.02,)]
        await there.load_balancers.EnsureLoadBalancer(ensure("a", epoch=1))


async def test_a_stop_does_not_wait_for_background_work_that_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background, "_FIRST_PAUSE", 3600.0)
    async with served(Cloud().provider(while_leading=_fails), tmp_path) as there:
        await lead(there, 1, FAR)
        await until(lambda: any(record.exc_info for record in caplog.records))


@pytest.mark.parametrize("leadership", [True, False])
async def test_who_leads_is_told_or_ignored(tmp_path: Path, *, leadership: bool) -> None:
    provider = Cloud().provider(leadership=leadership)
    assert (pb.CAPABILITY_LEADERSHIP in provider.advertised.capabilities) == leadership
    async with served(provider, tmp_path) as there:
        if leadership:
            await lead(there, 1, FAR)
        else:
            request = pb.LeadRequest(cluster=CLUSTER, fencing=leader("lease", 1))
            assert (await refused(there.base.Lead(request))).reason == pb.ERROR_REASON_METHOD_NOT_SUPPORTED


async def test_what_is_done_while_leading_needs_leaders_without_any_mutation() -> None:
    async def work(_: pb.ClusterRef) -> None: ...

    assert pb.CAPABILITY_LEADERSHIP in Provider("test", while_leading=work).advertised.capabilities
    assert not Provider("test").advertised.capabilities


async def test_after_a_standstill_nothing_goes_on_whose_term_is_over() -> None:
    """[R:lead-ends] The cloud's answer has arrived meanwhile, and is heard before the clock."""
    loop = asyncio.get_running_loop()
    here, cloud = socket.socketpair()
    answer, further = loop.create_future(), []
    loop.add_reader(here, partial(answer.set_result, None))

    async def mutation() -> None:
        await answer
        further.append("another call of the cloud")

    term, running = Term(leader("lease", 1)), asyncio.create_task(mutation())
    term.tasks.add(running)
    term.lasts(0.05)
    await asyncio.sleep(0)
    cloud.send(b"x")
    time.sleep(0.1)  # noqa: ASYNC251 - the process stands still
    answer.add_done_callback(lambda _: loop.remove_reader(here))
    await asyncio.wait({running})
    assert running.cancelled(), further
    here.close()
    cloud.close()
