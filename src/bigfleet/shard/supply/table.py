"""What is known of every machine of every provider. Events in, effects out: no I/O, and time only as it is told.

Lists, Gets and acks come late, doubled and in any order. An ack is the truth when it arrives. A row or an answer that
was asked for before the machine was last heard of may be older or newer than that, so nothing is taken from it and a
Get is asked for. The same is done where a row came before an ack but after the ack's call. A machine that its provider
no longer lists is forgotten only as protocol rule 7 allows. Half a million machines are held, so a fact that holds for
few of them is kept in a table of its own.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from bigfleet.model.machine import Call, CapacityType, Machine, MachineState, can
from bigfleet.provider.records import Answer, Listing, Refusal
from bigfleet.shard.supply.known import (
    Changed,
    Doubt,
    Effect,
    Incident,
    IncidentKind,
    KnownMachines,
    NameClaim,
    OpenDoubt,
    UnaskedDrain,
)
from bigfleet.shard.supply.stamps import Binding, Garbled, StampReading, from_metadata

NODE_NAME = "bigfleet.lucy.sh/node-name"
"""The label by which a provider names a node other than by its machine's id."""

FEWEST_GUARDED = 10
"""With so many known machines or more, a full list that lacks over a tenth of them is not believed at once."""

LISTS_TO_AGREE = 3
"""How many such lists in a row must lack a machine before its absence is believed."""

_LACKING_SHARE = 10
"""A full list is doubtful if it lacks more than one in so many of the known machines."""

_MEMORY_SECONDS = 3600.0
"""How long it is remembered when a machine was heard of. No List takes longer, so no later row can be older."""

_S = MachineState
# A machine that was last seen in one of these states and drains now was not drained by a recovery. If it was not bound
# when it was last seen, it was bound in between.
_BEFORE_A_DRAIN = frozenset({_S.SPECULATIVE, _S.CREATING, _S.IDLE, _S.CONFIGURING, _S.CONFIGURED})


class _Turn:
    """One event at work."""

    def __init__(self, home: KnownMachines, now: float, epoch: int | None) -> None:
        #: What is known of the provider that the event comes from.
        self.home = home
        self.now = now
        #: The epoch above which a stamp of this shard is another process's; None where there is no such epoch yet.
        self.epoch = epoch
        #: What has come of the event so far.
        self.effects: list[Effect] = []


def node_name(machine: Machine) -> str:
    """The name of the machine's node."""
    return machine.labels.get(NODE_NAME) or machine.id


class Supply:
    """The machines of one shard, by provider.

    `epoch` of an event is the shard's epoch. It is None while a provider has not been listed in full: an earlier life
    may have had a higher epoch that its file did not survive. Stamps seen then only raise `highest_epoch`.
    """

    def __init__(self, shard_id: str, highest_number: int = 0) -> None:
        self.shard_id = shard_id
        #: The highest epoch on a stamp of this shard that came by an event without an epoch.
        self.highest_epoch = 0
        #: The highest number of a binding of this shard, seen on a stamp or given out.
        self.highest_number = highest_number
        #: Dollars an hour of every machine that is paid for.
        self.cost_per_hour = 0.0
        self._providers: dict[str, KnownMachines] = {}
        self._in_flight: set[str] = set()
        # Machines with a call on its way, and whether anything was heard of them since the call was made.
        self._calls: dict[str, bool] = {}
        self._idle_since: dict[str, float] = {}
        # Machines by the name of their node, where that is not the machine's id.
        self._nodes: dict[str, str] = {}
        self._foreign: set[str] = set()
        # Machines that their provider takes back: they drain, and nobody asked for it.
        self._taken_back: set[str] = set()
        # Machines that were first seen with a bad price or probability, so that no good one is known.
        self._unpriced: set[str] = set()

    # Events

    def listed(self, provider: str, listing: Listing, now: float, epoch: int | None = None) -> list[Effect]:
        """A List has ended, or a part of one has come: the provider is within reach."""
        turn = _Turn(self._provider(provider), now, epoch)
        home, rows = turn.home, listing.machines
        known, known_before, new = home.machines, len(home.machines), 0
        home.reachable, home.answered_at, home.problem = True, now, ""
        rivals: list[tuple[Machine, bool]] = []
        for machine_id, row in rows.items():
            before = known.get(machine_id)
            if before is row or before == row:
                continue
            new += before is None
            if self._row(turn, row, listing.began) is not None:
                rivals.append((row, False))
        for refusal in listing.refused:
            before = known.get(refusal.machine_id)
            rest = _mended(refusal, before)
            if rest is not None and rest != before and self._row(turn, rest, listing.began, spoiled=True) is not None:
                rivals.append((rest, True))
        refused = {refusal.machine_id for refusal in listing.refused}
        self._overtake(rows.keys())
        self._overtake(refused)
        self._settle(turn, listing, refused)
        if listing.full:
            home.listed_whole = True
            if len(rows) - new < known_before:
                absent = [machine_id for machine_id in known if machine_id not in rows and machine_id not in refused]
                self._miss(turn, absent, known_before, listing.began)
            else:
                home.lacked = {}
            home.heard = {i: at for i, at in home.heard.items() if at > listing.began - _MEMORY_SECONDS}
            home.claims = {i: claim for i, claim in home.claims.items() if i in rows or i in refused}
        for row, spoiled in rivals:
            # Another row of the list may have freed the name.
            claim = self._take(turn, row, spoiled=spoiled)
            if claim is not None:
                self._refuse(turn, row, claim)
        self._look_at_claims(turn)
        return turn.effects

    def got(
        self,
        provider: str,
        machine_id: str,
        answer: Answer | None,
        began: float,
        now: float,
        epoch: int | None = None,
    ) -> list[Effect]:
        """A Get was answered; None is NOT_FOUND, which alone removes no machine that is bound or in flight."""
        turn = _Turn(self._provider(provider), now, epoch)
        home, doubts = turn.home, turn.home.doubts
        self._overtake({machine_id})
        before = home.machines.get(machine_id)
        if self.is_late(provider, machine_id, began):
            if machine_id in doubts or answer is None or answer.machine != before:
                doubts.setdefault(machine_id, OpenDoubt(home.heard[machine_id], absent=False))
                turn.effects.append(Doubt(machine_id, provider))
            return turn.effects
        doubt = doubts.get(machine_id)
        settles = doubt is None or began >= doubt.since
        if settles:
            doubts.pop(machine_id, None)
        else:
            turn.effects.append(Doubt(machine_id, provider))
        if answer is not None:
            if answer.machine != before:
                home.heard[machine_id] = now
            self._news(turn, answer.machine, answer.refused)
        elif before is not None and settles and (not self._is_kept(before) or (doubt is not None and doubt.absent)):
            self._drop(turn, before)
        return turn.effects

    def called(self, machine_id: str) -> None:
        """A mutating call is about to be made."""
        self._calls[machine_id] = False

    def unanswered(self, machine_id: str, now: float) -> None:
        """A mutating call brought no record. What was asked for before now may not show what became of the call."""
        self._calls.pop(machine_id, None)
        home = self._home(machine_id)
        if home is not None:
            home.heard[machine_id] = now
            if machine_id in home.doubts:
                home.doubts[machine_id] = OpenDoubt(now, home.doubts[machine_id].absent)

    def acknowledged(
        self, machine_id: str, machine: Machine, refusal: Refusal | None, now: float, epoch: int | None = None
    ) -> list[Effect]:
        """A mutating call was answered with this record, which is the truth even if it is not what was asked for."""
        overtaken = self._calls.pop(machine_id, False)
        home = self._home(machine_id)
        if home is None:
            # The machine was removed in the meantime. If it is there all the same, a list shows it.
            return []
        home.heard[machine_id] = now
        if machine_id in home.doubts:
            # Nobody knows whether the row that raised the doubt is older than this ack too, but the machine was there.
            home.doubts[machine_id] = OpenDoubt(now, absent=False)
        turn = _Turn(home, now, epoch)
        if overtaken and machine != home.machines[machine_id]:
            # A row that was heard since the call may be newer than the ack, and no delta would show it again.
            self._doubt(turn, home, machine_id, now)
        self._news(turn, machine, refusal)
        return turn.effects

    def in_flight(self, machine_id: str, under_way: bool) -> None:
        """A commitment for the machine begins, before its first call, or is over."""
        if under_way:
            self._in_flight.add(machine_id)
        else:
            self._in_flight.discard(machine_id)

    def provider_lost(self, provider: str, problem: str = "") -> None:
        """The provider does not answer: its machines stay as last known, and none is acted on until it lists again."""
        home = self._provider(provider)
        home.reachable, home.problem = False, problem

    def provider_gone(self, provider: str) -> None:
        """The provider is unregistered and no call to it runs: its machines stay as last known, and no Get is made."""
        self.provider_lost(provider)
        self._providers[provider].doubts.clear()

    def resume_idle(self, elapsed: Mapping[str, float], now: float) -> None:
        """After a restart, before the first list: for how long machines had been Idle (protocol rule 19)."""
        self._idle_since |= {machine_id: now - seconds for machine_id, seconds in elapsed.items()}

    def resume_taken_back(self, machine_ids: Iterable[str]) -> None:
        """After a restart, before the first list: the machines that a provider was taking back."""
        self._taken_back.update(machine_ids)

    def numbered(self, number: int) -> None:
        """A binding of this number was seen or given out: the next binding gets a higher one."""
        self.highest_number = max(self.highest_number, number)

    # Questions

    def is_late(self, provider: str, machine_id: str, began: float) -> bool:
        """Whether a Get that began then may be older than what was heard of the machine since."""
        return began < self._provider(provider).heard.get(machine_id, -math.inf)

    def __len__(self) -> int:
        return sum(len(home.machines) for home in self._providers.values())

    def machines(self) -> Iterator[Machine]:
        """Every machine."""
        for home in self._providers.values():
            yield from home.machines.values()

    def machines_of(self, provider: str) -> Collection[Machine]:
        """Every machine of one provider."""
        home = self._providers.get(provider)
        return () if home is None else home.machines.values()

    def find(self, machine_id: str) -> Machine | None:
        """The machine of that id, if there is one."""
        home = self._home(machine_id)
        return None if home is None else home.machines[machine_id]

    def by_node(self, name: str) -> Machine | None:
        """The machine whose node has that name, if there is one."""
        machine = self.find(self._nodes.get(name, name))
        return machine if machine is not None and node_name(machine) == name else None

    def provider_of(self, machine_id: str) -> str | None:
        """The name of the machine's provider."""
        home = self._home(machine_id)
        return None if home is None else home.name

    def has_listed(self, provider: str) -> bool:
        """Whether the provider has been listed in full since the shard started."""
        home = self._providers.get(provider)
        return home is not None and home.listed_whole

    def is_reachable(self, provider: str) -> bool:
        """Whether the provider answered when it was last asked for a list."""
        home = self._providers.get(provider)
        return home is not None and home.reachable

    def silence(self, provider: str) -> tuple[float | None, str]:
        """When the provider last answered a List, None for never; and why it does not answer now, if that is known."""
        home = self._provider(provider)
        return home.answered_at, home.problem

    def misses_machines(self, provider: str) -> bool:
        """Whether a full list lacked a machine, and no Get has yet told whether the machine is gone."""
        return any(doubt.absent for doubt in self._provider(provider).doubts.values())

    def usable(self, machine_id: str) -> bool:
        """Whether the machine may be acted on: its provider answers, its price is known, it is no other shard's."""
        home = self._home(machine_id)
        if home is None or not home.reachable:
            return False
        return machine_id not in self._foreign and machine_id not in self._unpriced

    def is_taken_back(self, machine_id: str) -> bool:
        """Whether the provider takes the machine back: it is nobody else's until its drain is through."""
        return machine_id in self._taken_back

    def doubts(self) -> Iterator[Doubt]:
        """Every doubt that stands. A Get that failed is to be tried again for as long as its doubt does."""
        for home in self._providers.values():
            for machine_id in home.doubts:
                yield Doubt(machine_id, home.name)

    def idle_since(self, machine_id: str) -> int:
        """For MachineRecord.idle_since: when the machine was first seen Idle; 0 where it is not Idle."""
        return math.ceil(self._idle_since.get(machine_id, 0.0))

    def idle_for(self, now: float) -> dict[str, float]:
        """How long every Idle machine has been Idle."""
        return {machine_id: max(0.0, now - since) for machine_id, since in self._idle_since.items()}

    def counts(self, provider: str | None = None) -> Counter[tuple[MachineState, CapacityType]]:
        """How many machines there are by state and capacity type, of one provider or of all."""
        counts: Counter[tuple[MachineState, CapacityType]] = Counter()
        for home in self._providers.values():
            if provider is None or home.name == provider:
                counts += home.counts
        return counts

    # What a record comes to

    def _provider(self, name: str) -> KnownMachines:
        provider = self._providers.get(name)
        if provider is None:
            provider = self._providers[name] = KnownMachines(name)
        return provider

    def _home(self, machine_id: str) -> KnownMachines | None:
        # Providers are few, machines many: no index of all ids.
        return next((home for home in self._providers.values() if machine_id in home.machines), None)

    def _is_kept(self, machine: Machine) -> bool:
        """Whether the machine is bound or in flight, so that one source alone does not remove it (protocol rule 7)."""
        return bool(machine.cluster) or machine.id in self._in_flight

    def _row(self, turn: _Turn, row: Machine, began: float, *, spoiled: bool = False) -> NameClaim | None:
        """Take a row that differs from what is known; ask for a Get where the row may be older than an ack."""
        if turn.home.may_lag(row.id, began):
            self._watch_epoch(turn, row.id, from_metadata(row.shard_metadata))
            # The doubt is kept, not the row: the answer of the Get counts, whatever the row said.
            self._doubt(turn, turn.home, row.id, turn.home.heard[row.id])
            return None
        before = turn.home.machines.get(row.id)
        if before is not None and _has_moved(before, row):
            turn.home.heard[row.id] = turn.now
        return self._take(turn, row, spoiled=spoiled)

    def _news(self, turn: _Turn, machine: Machine, refusal: Refusal | None) -> None:
        """Take the record of an ack or a Get."""
        before = turn.home.machines.get(machine.id)
        row = machine if refusal is None or before is None else refusal.mended(before)
        if row != before or (refusal is None and machine.id in self._unpriced):
            claim = self._take(turn, row, spoiled=refusal is not None)
            if claim is not None:
                self._refuse(turn, row, claim)

    def _take(self, turn: _Turn, row: Machine, *, spoiled: bool) -> NameClaim | None:
        """Take the record, whatever edge that implies. It is refused if another machine has its id or node name."""
        home, machine_id = turn.home, row.id
        claim = self._rival(home, row)
        if claim is not None:
            return claim
        before = home.put(row)
        self.cost_per_hour += _paid(row) - _paid(before)
        self._name(before, row)
        if row.state is _S.IDLE:
            self._idle_since.setdefault(machine_id, turn.now)
        else:
            self._idle_since.pop(machine_id, None)
        if row.state is not _S.DRAINING:
            self._taken_back.discard(machine_id)
        if not spoiled:
            self._unpriced.discard(machine_id)
        elif before is None:
            self._unpriced.add(machine_id)
        turn.effects.append(Changed(machine_id, before, row, home.name))
        if before is None or before.shard_metadata != row.shard_metadata:
            self._judge_stamp(turn, row)
        if before is not None and self._is_unasked_drain(before, row):
            # Who loses the machine must not be given it as its own replacement (ADR 9.1).
            self._taken_back.add(machine_id)
            turn.effects.append(UnaskedDrain(machine_id))
        return None

    def _drop(self, turn: _Turn, machine: Machine) -> None:
        home = turn.home
        home.remove(machine)
        self.cost_per_hour -= _paid(machine)
        self._taken_back.discard(machine.id)
        self._name(machine, None)
        self._idle_since.pop(machine.id, None)
        self._foreign.discard(machine.id)
        self._unpriced.discard(machine.id)
        turn.effects.append(Changed(machine.id, machine, None, home.name))

    def _is_unasked_drain(self, before: Machine, row: Machine) -> bool:
        if row.state is not _S.DRAINING or before.state not in _BEFORE_A_DRAIN or row.id in self._foreign:
            return False
        # The shard asks for a drain only where it is legal. Out of any other state the provider drained unasked.
        return row.id not in self._in_flight or not can(Call.DRAIN, before.state, before.host is not None)

    # Doubts and absence

    def _overtake(self, machine_ids: AbstractSet[str]) -> None:
        """These machines were heard of: the ack of a call that is on its way may be older than that."""
        for machine_id in self._calls.keys() & machine_ids:
            self._calls[machine_id] = True

    def _doubt(self, turn: _Turn, home: KnownMachines, machine_id: str, since: float, *, absent: bool = False) -> None:
        doubt = home.doubts.get(machine_id)
        if doubt is None:
            turn.effects.append(Doubt(machine_id, home.name))
        if doubt is None or (absent and not doubt.absent):
            home.doubts[machine_id] = OpenDoubt(since, absent)

    def _settle(self, turn: _Turn, listing: Listing, refused: set[str]) -> None:
        """End the doubts that are older than this list, and take the prices that were missing."""
        home, rows = turn.home, listing.machines
        for machine_id, doubt in list(home.doubts.items()):
            # A row that was refused says only that the machine is there.
            if listing.began > doubt.since and (machine_id in rows or (doubt.absent and machine_id in refused)):
                del home.doubts[machine_id]
        for machine_id in [i for i in self._unpriced if i in rows and rows[i] == home.machines.get(i)]:
            self._take(turn, rows[machine_id], spoiled=False)

    def _miss(self, turn: _Turn, absent: list[str], known: int, began: float) -> None:
        """A full list lacks these machines, of so many that are known (protocol rule 7)."""
        home = turn.home
        if known >= FEWEST_GUARDED and _LACKING_SHARE * len(absent) > known:
            home.lacked = {machine_id: home.lacked.get(machine_id, 0) + 1 for machine_id in absent}
            absent = [machine_id for machine_id, lists in home.lacked.items() if lists >= LISTS_TO_AGREE]
        else:
            home.lacked = {}
        for machine_id in absent:
            machine = home.machines[machine_id]
            if self._is_kept(machine) or home.may_lag(machine_id, began):
                self._doubt(turn, home, machine_id, turn.now, absent=True)
            else:
                self._drop(turn, machine)

    # Names and stamps

    def _rival(self, home: KnownMachines, row: Machine) -> NameClaim | None:
        """The provider or machine that has the row's id or node name already (protocol rule 5)."""
        before = home.machines.get(row.id)
        if before is None:
            other = self._home(row.id)
            if other is not None:
                return NameClaim(IncidentKind.SECOND_ID, row.id, other.name)
        name = node_name(row)
        if before is not None and node_name(before) == name:
            return None
        holder = self.by_node(name)
        return None if holder is None else NameClaim(IncidentKind.SECOND_NODE_NAME, name, holder.id)

    def _refuse(self, turn: _Turn, row: Machine, claim: NameClaim) -> None:
        self._watch_epoch(turn, row.id, from_metadata(row.shard_metadata))
        if turn.home.claims.get(row.id) == claim:
            return
        turn.home.claims[row.id] = claim
        what = "the id" if claim.kind is IncidentKind.SECOND_ID else "the node name"
        text = (
            f"{what} {claim.name[:200]!r} is that of {claim.holder[:200]!r}, so {turn.home.name!r} is refused with it"
        )
        turn.effects.append(Incident(claim.kind, row.id, text))

    def _look_at_claims(self, turn: _Turn) -> None:
        """Ask for machines that were refused for a name that is free now: no delta would show them again."""
        for home in self._providers.values():
            for machine_id, claim in list(home.claims.items()):
                by_id = claim.kind is IncidentKind.SECOND_ID
                if (self.find(claim.name) if by_id else self.by_node(claim.name)) is None:
                    del home.claims[machine_id]
                    self._doubt(turn, home, machine_id, turn.now)

    def _judge_stamp(self, turn: _Turn, row: Machine) -> None:
        self._foreign.discard(row.id)
        if not row.shard_metadata:
            return
        reading = from_metadata(row.shard_metadata)
        if isinstance(reading, Garbled):
            text = f"its stamp cannot be read and counts as none: {reading.reason}"
            turn.effects.append(Incident(IncidentKind.GARBLED_STAMP, row.id, text))
        elif isinstance(reading, Binding) and reading.shard_id != self.shard_id:
            self._foreign.add(row.id)
            text = f"shard {reading.shard_id!r} bound it in epoch {reading.epoch}; it is left alone"
            turn.effects.append(Incident(IncidentKind.FOREIGN_STAMP, row.id, text))
        elif isinstance(reading, Binding):
            self.numbered(reading.stamp.number)
        self._watch_epoch(turn, row.id, reading)

    def _watch_epoch(self, turn: _Turn, machine_id: str, reading: StampReading) -> None:
        """Report a stamp of a later life of this shard, on whatever row it is seen (protocol rule 10)."""
        if not isinstance(reading, Binding) or reading.shard_id != self.shard_id:
            return
        if turn.epoch is None:
            self.highest_epoch = max(self.highest_epoch, reading.epoch)
        elif reading.epoch > turn.epoch:
            text = f"shard {self.shard_id!r} bound it in epoch {reading.epoch}, but this process has {turn.epoch}"
            turn.effects.append(Incident(IncidentKind.HIGHER_EPOCH, machine_id, text))

    def _name(self, before: Machine | None, after: Machine | None) -> None:
        if before is not None:
            self._nodes.pop(node_name(before), None)
        if after is not None and node_name(after) != after.id:
            self._nodes[node_name(after)] = after.id


def _paid(machine: Machine | None) -> float:
    """Dollars an hour that the machine costs: nothing while it is only an offer."""
    return 0.0 if machine is None or machine.state is _S.SPECULATIVE else machine.price_per_hour


def _mended(refusal: Refusal, before: Machine | None) -> Machine | None:
    """What can be taken of a refused row: nothing, or the row with the last good price and probability."""
    return refusal.rest if refusal.rest is None or before is None else refusal.mended(before)


def _has_moved(before: Machine, after: Machine) -> bool:
    """Whether the machine's state, cluster or stamp has changed."""
    return (
        before.state is not after.state
        or before.cluster != after.cluster
        or before.shard_metadata != after.shard_metadata
    )
