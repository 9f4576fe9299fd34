"""A closed loop: a simulated provider that carries decisions out with any latency, and the shard's small memory.

Time runs in cycles. A decision's actions start right after it; an action of latency 0 is done before the next decision.
A committed machine is configured only after a decision has seen it Idle and kept its mark.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from tests.engine.oracle.bridge import decide
from tests.engine.oracle.world import (
    ACQUIRING,
    Action,
    Cluster,
    Decision,
    Kind,
    Machine,
    Need,
    Policy,
    Stamp,
    State,
    World,
)

Latency = Callable[[str, str, int], int]
"""(operation, machine, how many operations that machine had before) -> cycles."""

RUNNING = {
    State.CREATING: "create",
    State.CONFIGURING: "configure",
    State.DRAINING: "drain",
    State.DELETING: "delete",
}
RAIL_WINDOW = 10
FAILED_HOLD_OUT = 60


def fixed(create: int, configure: int, drain: int) -> Latency:
    """The same latency for every machine."""
    table = {"create": create, "configure": configure, "drain": drain, "delete": drain}
    return lambda operation, _machine, _nth: table[operation]


def scattered(seed: int, longest: int) -> Latency:
    """A latency of its own for each operation, so that completions come out of order; the same for the same seed."""

    def latency(operation: str, machine: str, nth: int) -> int:
        source = random.Random(f"{seed}/{operation}/{machine}/{nth}")
        return source.choice([0, 0, 1, 2, source.randint(0, longest)])

    return latency


def unseen(machine: Machine) -> Machine:
    """The machine without what an operator said of its node: that is said of a binding, and ends with it."""
    return replace(machine, empty=False, unrequested=None, protected=False, ready_failed=False)


@dataclass
class Loop:
    """The fleet, the shard's memory of it, and a clock."""

    machines: dict[str, Machine]
    needs: tuple[Need, ...]
    clusters: dict[str, Cluster]
    policy: Policy
    latency: Latency
    now: int = 0
    next_binding: int = 1
    cycle_seconds: int = 10
    fails: Callable[[str, str, int], bool] = field(default=lambda _operation, _machine, _nth: False)
    decider: Callable[[World], Decision] = decide
    recorded: dict[str, Stamp | None] = field(default_factory=dict)  # the provider's, of what drains for somebody else
    busy: dict[str, tuple[str, int]] = field(default_factory=dict)  # machine -> (operation, cycles left)
    history: dict[str, int] = field(default_factory=dict)
    log: list[tuple[int, Action]] = field(default_factory=list)
    decisions: int = 0

    @staticmethod
    def of(world: World, latency: Latency, cycle_seconds: int = 10) -> "Loop":
        """A loop that starts in this world; what is in flight in it ends after its latency."""
        loop = Loop(
            machines={m.id: m for m in world.machines},
            needs=world.needs,
            clusters={c.id: c for c in world.clusters},
            policy=world.policy,
            latency=latency,
            now=world.now,
            next_binding=world.next_binding,
            cycle_seconds=cycle_seconds,
        )
        for machine in sorted(world.machines, key=lambda m: m.id):
            if machine.state in RUNNING:
                loop._start(machine.id, RUNNING[machine.state])
            elif machine.state is State.SPECULATIVE and machine.committed_to:
                loop._set(machine.id, state=State.CREATING)
                loop._start(machine.id, "create")
        return loop

    def take(self, world: World) -> None:
        """Go on from this world: what somebody else did to the fleet, to demand, sessions, policy or clock.

        An operation ends where its machine is gone or no longer in the state that it runs in; one that somebody else
        started takes its latency from now on.
        """
        self.machines = {m.id: m if m.cluster else unseen(m) for m in world.machines}
        self.needs = world.needs
        self.clusters = {c.id: c for c in world.clusters}
        self.policy, self.now, self.next_binding = world.policy, world.now, world.next_binding
        states = {m.id: RUNNING.get(m.state) for m in world.machines}
        self.busy = {name: (doing, left) for name, (doing, left) in self.busy.items() if states.get(name) == doing}
        for name, doing in sorted(states.items()):
            if doing and name not in self.busy:
                self._start(name, doing)

    def copy(self) -> "Loop":
        """The same fleet again, to go another way from here."""
        return replace(
            self,
            machines=dict(self.machines),
            clusters=dict(self.clusters),
            recorded=dict(self.recorded),
            busy=dict(self.busy),
            history=dict(self.history),
            log=list(self.log),
        )

    def world(self) -> World:
        """What the engine sees now."""
        return World(
            machines=tuple(self.machines.values()),
            needs=self.needs,
            clusters=tuple(self.clusters.values()),
            policy=self.policy,
            now=self.now,
            next_binding=self.next_binding,
        )

    # One cycle

    def step(self) -> Decision:
        """Decide, carry out, and let the clock run to the next cycle."""
        decision = self.decide()
        self.apply(decision)
        self.advance()
        return decision

    def decide(self) -> Decision:
        """One decision on what the shard knows."""
        self.decisions += 1
        return self.decider(self.world())

    def apply(self, decision: Decision, *, start: bool = True) -> None:
        """Commit the decision's actions and remember what section 8 needs; with `start`, call the provider."""
        for name in decision.dropped:
            self._set(name, committed_to="", stamp=None, idle_since=self.now)
        for action in decision.actions:
            self.log.append((self.now, action))
            self._commit(action)
        for cluster in list(self.clusters.values()):
            since = cluster.excess_since
            since = (self.now if since is None else since) if cluster.id in decision.excess else None
            gone = sum(1 for a in decision.actions if a.kind is Kind.RECLAIM and a.cluster == cluster.id)
            self.clusters[cluster.id] = replace(
                cluster, excess_since=since, reclaimed_in_window=cluster.reclaimed_in_window + gone
            )
        if start:
            self.start_steps()

    def _commit(self, action: Action) -> None:
        match action.kind:
            case Kind.BOOTSTRAP | Kind.PROVISION:
                self._set(action.machine, committed_to=action.cluster, stamp=action.stamp)
            case Kind.PREEMPT:
                self.recorded[action.machine] = self.machines[action.machine].stamp
                self._set(action.machine, committed_to=action.cluster, stamp=action.stamp, state=State.DRAINING)
            case Kind.RECLAIM:
                self._set(action.machine, state=State.DRAINING)
            case Kind.DELETE:
                self._set(action.machine, state=State.DELETING)
        self.next_binding = max(self.next_binding, action.number + 1)

    def start_steps(self) -> None:
        """Start the next provider call of every machine that has one to make."""
        for machine in list(self.machines.values()):
            if machine.id in self.busy:
                continue
            if machine.state is State.SPECULATIVE and machine.committed_to:
                self._set(machine.id, state=State.CREATING)
                self._start(machine.id, "create")
            elif machine.state is State.IDLE and machine.committed_to:
                # Visible from Configuring on: the cluster is the provider's record now.
                self._set(machine.id, state=State.CONFIGURING, cluster=machine.committed_to, committed_to="")
                self._start(machine.id, "configure")
            elif machine.state is State.DRAINING:
                self._start(machine.id, "drain")
            elif machine.state is State.DELETING:
                self._start(machine.id, "delete")

    def advance(self, cycles: int = 1) -> None:
        """The clock runs; operations end; the rail's window turns over."""
        window = self.now // RAIL_WINDOW
        self.now += cycles * self.cycle_seconds
        if self.now // RAIL_WINDOW != window:
            self.clusters = {name: replace(c, reclaimed_in_window=0) for name, c in self.clusters.items()}
        for name, (operation, left) in list(self.busy.items()):
            if left < cycles:
                del self.busy[name]
                self._finish(name, operation)
            else:
                self.busy[name] = (operation, left - cycles)

    def _start(self, name: str, operation: str) -> None:
        nth = self.history.get(name, 0)
        self.history[name] = nth + 1
        self.busy[name] = (operation, self.latency(operation, name, nth))

    def _finish(self, name: str, operation: str) -> None:
        machine = self.machines[name]
        self.recorded.pop(name, None)
        if self.fails(operation, name, self.history[name]):
            # Protocol.md 1 and 8: recovered by the execute part, held out for a while; the commitment ends.
            gone = operation in ("create", "delete")
            state = State.SPECULATIVE if gone else State.IDLE
            self._set(name, state=state, cluster="", committed_to="", stamp=None, idle_since=self.now)
            self._set(name, not_before=self.now + FAILED_HOLD_OUT)
            return
        match operation:
            case "create":
                self._set(name, state=State.IDLE, idle_since=self.now)
            case "configure":
                self._set(name, state=State.CONFIGURED)
            case "drain":
                stamp = machine.stamp if machine.committed_to else None
                self._set(name, state=State.IDLE, cluster="", stamp=stamp, idle_since=self.now)
            case "delete":
                self._set(name, state=State.SPECULATIVE)

    def _set(self, name: str, **changes: object) -> None:
        old = self.machines[name]
        new = replace(old, **changes)  # type: ignore[arg-type]
        self.machines[name] = new if new.cluster == old.cluster else unseen(new)

    # To the end

    def settle(self, most_decisions: int = 400) -> bool:
        """Run until nothing is in flight, nothing is decided and no clock is left to run out; False when it never is.

        Cycles in which nothing can differ are skipped, which a decision cannot notice: it is a pure function.
        """
        quiet = False
        for _ in range(most_decisions):
            before = self.world()
            decision = self.decide()
            self.apply(decision)
            quiet = not decision.actions and not decision.dropped and self.world() == before
            if not quiet or decision.capped:
                self.advance()
                continue
            cycles = self._cycles_to_next_event()
            if cycles is None:
                return True
            self.advance(cycles)
        return False

    def _cycles_to_next_event(self) -> int | None:
        times = [self.now + left * self.cycle_seconds for _, left in self.busy.values()]
        for machine in self.machines.values():
            times += [machine.not_before, machine.reclaim_hold_until]
            hold = self.policy.idle_hold.get(machine.capacity_type)
            if machine.state is State.IDLE and hold is not None:
                times += [machine.idle_since + hold, machine.idle_since + hold + 1]
        for cluster in self.clusters.values():
            times += cluster.held_out.values()
            if cluster.excess_since is not None:
                times.append(cluster.excess_since + self.policy.reclaim_after)
        times += self.policy.held_out_shapes.values()
        ahead = [t for t in times if t > self.now]
        if not ahead:
            return 1 if self.busy else None
        soonest = -(-(min(ahead) - self.now) // self.cycle_seconds)
        return 1 if any(left == 0 for _, left in self.busy.values()) else max(1, soonest)

    def acquired(self, since: int = 0) -> list[Action]:
        """The acquisitions from one place of the log on."""
        return [action for _, action in self.log[since:] if action.kind in ACQUIRING]

    def change(self, needs: Iterable[Need]) -> None:
        """New demand; from here on the log counts for it."""
        self.needs = tuple(needs)
