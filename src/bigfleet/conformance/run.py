"""One run of the suite, from the first probe to the last machine brought back."""

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from bigfleet.conformance.catalogue import BEHAVIOURS
from bigfleet.conformance.checks.durability import Restart
from bigfleet.conformance.errors import BrokenError, NotApplicableError, TargetError
from bigfleet.conformance.suite import Behaviour, Outcome, Phase, Profile, Result, selects
from bigfleet.conformance.workbench.bench import Bench, Facts
from bigfleet.conformance.workbench.handle import Handle
from bigfleet.conformance.workbench.pool import Pool
from bigfleet.conformance.workbench.probe import active_profiles, probe
from bigfleet.conformance.workbench.process import Launched
from bigfleet.conformance.workbench.requests import Shard
from bigfleet.conformance.workbench.target import Target
from bigfleet.conformance.workbench.witness import Witness
from bigfleet.model.labels import CONFORMANCE_FAULT
from bigfleet.transport.address import Address
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.server_check import DialError
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Options:
    """What a person asked for."""

    address: Address
    seed: int
    tls: LiveTLS | None = None
    profiles: frozenset[Profile] = frozenset()
    only: tuple[str, ...] = ()
    settle_seconds: float = 60.0
    launch: str | None = None
    launch_log: Path | None = None
    hosts_command: str | None = None
    bootstrap_blob: bytes = b"#!/bin/sh\n# bigfleet conformance\n"


@dataclass(frozen=True, slots=True)
class Report:
    """What a run came to."""

    target: str
    seed: int
    began: datetime
    seconds: float
    facts: Facts
    profiles: tuple[Profile, ...]
    results: tuple[Result, ...]
    problems: tuple[str, ...]
    left_behind: tuple[str, ...]

    def count(self, outcome: Outcome) -> int:
        """How many behaviours came out like this."""
        return sum(result.outcome is outcome for result in self.results)

    @property
    def passed(self) -> bool:
        """True if nothing failed: neither a behaviour nor the run as a whole."""
        return not self.problems and not self.count(Outcome.FAILED)


class Progress(Protocol):
    """Whoever watches a run."""

    def began(self, options: Options, facts: Facts, profiles: Sequence[Profile], chosen: Sequence[Behaviour]) -> None:
        """The probes are done and the checks begin."""

    def started(self, behaviour: Behaviour) -> None:
        """A check begins."""

    def finished(self, result: Result) -> None:
        """A check has ended, or was skipped."""


async def certify(options: Options, progress: Progress) -> Report:
    """Run the suite. DialError and TargetError mean that there was nothing to judge."""
    began, start = datetime.now(UTC), time.monotonic()
    target = Target(options.address, options.tls, options.settle_seconds, Witness())
    async with AsyncExitStack() as stack:
        stack.push_async_callback(target.hang_up)
        restart = await _launch(options, target, stack)
        await target.connect()
        new_shard = _shards(options.tls)

        def hand(record: pb.Machine) -> Handle:
            return Handle(target, record, new_shard(), options.bootstrap_blob)

        found = await probe(
            target, hand, options.profiles, tls=options.tls is not None, launched=options.launch is not None
        )
        profiles, problems = active_profiles(options.profiles, found.facts)
        pool = Pool(found.machines, hand)

        def bench(behaviour: Behaviour) -> Bench:
            return Bench(
                id=behaviour.id,
                target=target,
                pool=pool,
                facts=found.facts,
                rng=random.Random(f"{options.seed}/{behaviour.id}"),  # noqa: S311 - cases to replay, not secrets
                shard=new_shard,
                restart=restart,
                hosts_command=options.hosts_command,
            )

        chosen = [
            behaviour
            for behaviour in BEHAVIOURS
            if not options.only or any(selects(selector, behaviour) for selector in options.only)
        ]
        progress.began(options, found.facts, sorted(profiles), chosen)
        try:
            results = await _run_all(chosen, profiles, found.facts, bench, progress)
        finally:
            left_behind = await pool.restore()
    return Report(
        target=str(options.address),
        seed=options.seed,
        began=began,
        seconds=time.monotonic() - start,
        facts=found.facts,
        profiles=tuple(sorted(profiles)),
        results=tuple(results),
        problems=tuple(problems),
        left_behind=tuple(left_behind),
    )


async def _launch(options: Options, target: Target, stack: AsyncExitStack) -> Restart | None:
    if options.launch is None:
        return None
    try:
        await target.connect()
    except DialError:
        launched = Launched(options.launch, target, options.launch_log)
        stack.push_async_callback(launched.stop)
        await launched.start()
        return Restart(launched)
    raise TargetError(f"something answers at {options.address} already; with --launch the suite starts the provider")


def _shards(tls: LiveTLS | None) -> Callable[[], Shard]:
    """Shards that nobody has used; over TLS the certificate's, whose tokens only grow."""
    if tls is not None:
        own = Shard.by_the_clock(str(tls.identity.id))
        return lambda: own
    run, numbers = f"{time.time_ns():x}", itertools.count(1)
    return lambda: Shard.by_the_clock(f"conformance-{run}-{next(numbers)}")


async def _run_all(
    chosen: Sequence[Behaviour],
    profiles: frozenset[Profile],
    facts: Facts,
    bench: Callable[[Behaviour], Bench],
    progress: Progress,
) -> list[Result]:
    results: dict[str, Result] = {}

    async def run(behaviour: Behaviour, slots: asyncio.Semaphore) -> None:
        reason = _inapplicable(behaviour, profiles, facts)
        if reason is None:
            async with slots:
                progress.started(behaviour)
                result = await _run_one(behaviour, bench(behaviour))
        else:
            result = Result(behaviour, Outcome.SKIPPED, reason)
        results[behaviour.id] = result
        progress.finished(result)

    for phase, at_once in ((Phase.TOGETHER, _AT_ONCE), (Phase.ALONE, 1), (Phase.LAST, 1)):
        slots = asyncio.Semaphore(at_once)
        async with asyncio.TaskGroup() as group:
            for behaviour in chosen:
                if behaviour.phase is phase:
                    group.create_task(run(behaviour, slots))
    return [results[behaviour.id] for behaviour in chosen]


def _inapplicable(behaviour: Behaviour, profiles: frozenset[Profile], facts: Facts) -> str | None:
    if behaviour.profile not in profiles:
        return f"profile {behaviour.profile}: {_why_not(behaviour.profile, facts)}"
    if behaviour.own_shards and facts.tls:
        return "needs shard ids of its own; over TLS the provider takes calls only from the certificate's"
    return None


def _why_not(profile: Profile, facts: Facts) -> str:
    reasons = {
        Profile.CLOUD: ""
        if facts.deletable
        else "Delete is UNIMPLEMENTED here"
        if facts.ordinary
        else "no machine to try",
        Profile.SCALE: "it takes long; ask for it with --profile scale",
        Profile.DURABLE: "" if facts.launched else "give --launch CMD to let the suite kill the provider",
        Profile.FAULT: "" if facts.faults else f"no machine offers one, by the label {CONFORMANCE_FAULT}",
    }
    return reasons.get(profile) or "not asked for with --profile"


async def _run_one(behaviour: Behaviour, bench: Bench) -> Result:
    start = time.monotonic()
    outcome, message = Outcome.PASSED, ""
    try:
        await behaviour.check(bench)
    except NotApplicableError as error:
        outcome, message = Outcome.SKIPPED, str(error)
    except BrokenError as error:
        outcome, message = Outcome.FAILED, str(error)
    return Result(behaviour, outcome, message, time.monotonic() - start, tuple(bench.notes))
