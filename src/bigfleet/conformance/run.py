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
from bigfleet.conformance.causes import Cause, causes
from bigfleet.conformance.checks.durability import Restart
from bigfleet.conformance.errors import BrokenError, NotApplicableError, NotCheckedError, TargetError
from bigfleet.conformance.suite import Behaviour, Outcome, Phase, Profile, Result, selects
from bigfleet.conformance.workbench.bench import LARGE_FLEET, Bench, Facts
from bigfleet.conformance.workbench.handle import Handle
from bigfleet.conformance.workbench.hosts import HostList
from bigfleet.conformance.workbench.pool import Pool
from bigfleet.conformance.workbench.probe import active_profiles, probe
from bigfleet.conformance.workbench.process import Launched
from bigfleet.conformance.workbench.requests import Shard
from bigfleet.conformance.workbench.target import Target
from bigfleet.conformance.workbench.tasks import to_the_end
from bigfleet.conformance.workbench.witness import Witness
from bigfleet.model.labels import CONFORMANCE_FAULT
from bigfleet.transport.address import Address
from bigfleet.transport.renewal import LiveTLS
from bigfleet.transport.server_check import DialError
from bigfleet.wire.v1alpha1 import provider_pb2 as pb

_CHECKS_AT_ONCE = 8
_DEFAULT_BLOB = b"#!/bin/sh\n# bigfleet conformance\n"


@dataclass(frozen=True, slots=True)
class Options:
    """What the person who started the run asked for."""

    address: Address
    seed: int
    tls: LiveTLS | None = None
    profiles: frozenset[Profile] = frozenset()
    only: tuple[str, ...] = ()
    settle_seconds: float = 60.0
    launch: str | None = None
    launch_log: Path | None = None
    hosts_command: str | None = None
    bootstrap_blob: bytes = _DEFAULT_BLOB


@dataclass(frozen=True, slots=True)
class Report:
    """What a run found."""

    target: str
    seed: int
    only: tuple[str, ...]
    began: datetime
    seconds: float
    facts: Facts
    profiles: tuple[Profile, ...]
    results: tuple[Result, ...]
    problems: tuple[str, ...]
    """What is wrong with the run as a whole, one sentence each."""
    log: tuple[str, ...]
    """The last lines of a provider that ended in the middle of the run."""
    left_behind: tuple[str, ...]
    """A sentence for each machine that is not as it was found."""

    def count(self, outcome: Outcome) -> int:
        """The number of behaviours with this outcome."""
        return sum(result.outcome is outcome for result in self.results)

    @property
    def passed(self) -> bool:
        """True if nothing failed: neither a behaviour nor the run as a whole."""
        return not self.problems and not self.count(Outcome.FAILED)

    @property
    def causes(self) -> list[Cause]:
        """The causes of all failures."""
        return causes(self.results)

    @property
    def unchecked(self) -> dict[str, list[Result]]:
        """The skipped behaviours that apply to this provider, by the word that names what was not checked."""
        found: dict[str, list[Result]] = {}
        for result in self.results:
            if result.unchecked:
                found.setdefault(result.unchecked, []).append(result)
        return dict(sorted(found.items()))

    @property
    def verdict(self) -> str:
        """The verdict in one line; a good one names what was not checked."""
        if not self.passed:
            return "DOES NOT CONFORM"
        only = f"; checked: {', '.join(self.only)} only" if self.only else ""
        unchecked = f"; not checked: {', '.join(self.unchecked)}" if self.unchecked else ""
        return f"CONFORMS{only}{unchecked}"


class Progress(Protocol):
    """Is told how a run goes on."""

    def began(self, options: Options, facts: Facts, profiles: Sequence[Profile], chosen: Sequence[Behaviour]) -> None:
        """The probes are done and the checks begin."""

    def started(self, behaviour: Behaviour) -> None:
        """A check begins."""

    def finished(self, result: Result) -> None:
        """A check has ended, or was skipped."""


async def certify(options: Options, progress: Progress) -> Report:
    """Run the suite. DialError and TargetError mean that no provider could be judged."""
    began, start = datetime.now(UTC), time.monotonic()
    target = Target(options.address, options.tls, options.settle_seconds, Witness())
    async with AsyncExitStack() as stack:
        stack.push_async_callback(target.hang_up)
        launched = await _launch(options, target, stack)
        restart = None if launched is None else Restart(launched)
        await target.connect()
        hosts = None if options.hosts_command is None else HostList(options.hosts_command, options.settle_seconds)
        if hosts is not None:
            await hosts.remember()
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
                hosts=hosts,
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
            # A run that is called off now must not leave machines behind either.
            left_behind = await to_the_end(pool.restore())
        log: tuple[str, ...] = ()
        if launched is not None and launched.exit_code is not None:
            problems.append(f"the provider ended by itself with code {launched.exit_code} during the run")
            log = launched.last_lines()
    return Report(
        target=str(options.address),
        seed=options.seed,
        only=options.only,
        began=began,
        seconds=time.monotonic() - start,
        facts=found.facts,
        profiles=tuple(sorted(profiles)),
        results=tuple(results),
        problems=tuple(problems),
        log=log,
        left_behind=tuple(left_behind),
    )


async def _launch(options: Options, target: Target, stack: AsyncExitStack) -> Launched | None:
    if options.launch is None:
        return None
    try:
        await target.connect()
    except DialError:
        launched = Launched(options.launch, target, options.launch_log)
        stack.push_async_callback(launched.stop)
        await launched.start()
        return launched
    raise TargetError(f"something answers at {options.address} already; with --launch the suite starts the provider")


def _shards(tls: LiveTLS | None) -> Callable[[], Shard]:
    """Makes shards with ids that nobody has used. Over TLS it is always the certificate's shard."""
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
        try:
            _require(behaviour, profiles, facts)
        except NotApplicableError as error:
            result = _skipped(behaviour, error)
        else:
            async with slots:
                progress.started(behaviour)
                result = await _run_one(behaviour, bench(behaviour))
        results[behaviour.id] = result
        progress.finished(result)

    for phase, at_once in ((Phase.TOGETHER, _CHECKS_AT_ONCE), (Phase.ALONE, 1), (Phase.LAST, 1)):
        slots = asyncio.Semaphore(at_once)
        async with asyncio.TaskGroup() as group:
            for behaviour in chosen:
                if behaviour.phase is phase:
                    group.create_task(run(behaviour, slots))
    return [results[behaviour.id] for behaviour in chosen]


def _require(behaviour: Behaviour, profiles: frozenset[Profile], facts: Facts) -> None:
    """Raise if the behaviour is not checked in this run, with the reason."""
    profile = behaviour.profile
    if profile not in profiles:
        text = f"profile {profile}: {_why_not(profile, facts)}"
        if _applies(profile, facts):
            raise NotCheckedError(profile.value, text)
        raise NotApplicableError(text)
    if behaviour.own_shards and facts.tls:
        text = "needs several shard ids; over TLS a provider takes calls only from the certificate's shard"
        raise NotCheckedError("several shards", text)


def _applies(profile: Profile, facts: Facts) -> bool:
    """Whether the profile is one that this provider could be checked for, given another command line."""
    return {
        Profile.CLOUD: facts.deletable,
        Profile.BARE_METAL: not facts.deletable,
        Profile.SPOT: facts.spot > 0,
        Profile.SCALE: facts.machines >= LARGE_FLEET,
    }.get(profile, True)


def _why_not(profile: Profile, facts: Facts) -> str:
    reasons = {
        Profile.CLOUD: ""
        if facts.deletable
        else "Delete is UNIMPLEMENTED here"
        if facts.ordinary
        else "no machine to try",
        Profile.SCALE: "it takes long; ask for it with --profile scale",
        Profile.DURABLE: "" if facts.launched else "give --launch CMD to let the suite kill the provider",
        Profile.FAULT: "" if facts.faults else f"no machine has the label {CONFORMANCE_FAULT}; see --help",
    }
    return reasons.get(profile) or "not asked for with --profile"


async def _run_one(behaviour: Behaviour, bench: Bench) -> Result:
    start = time.monotonic()
    outcome, message, cause = Outcome.PASSED, "", ""
    try:
        await behaviour.check(bench)
    except NotApplicableError as error:
        return _skipped(behaviour, error)
    except BrokenError as error:
        outcome, message, cause = Outcome.FAILED, str(error), error.cause
    return Result(behaviour, outcome, message, time.monotonic() - start, tuple(bench.notes), cause)


def _skipped(behaviour: Behaviour, error: NotApplicableError) -> Result:
    unchecked = error.subject if isinstance(error, NotCheckedError) else ""
    return Result(behaviour, Outcome.SKIPPED, str(error), unchecked=unchecked)
