"""Every step of a commitment, what each step awaits and where each may lead, as data.

Two rules for this file. Nothing outside it decides what a step awaits, whether a commitment may be revoked in it, where
a machine has fallen back, how a step is restored or what a machine's state calls for: other files ask these tables. And
nothing in it acts: it knows no commitment, no clock and no provider. `hack/commitment_drawing.py` draws these tables.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from bigfleet.model.machine import Call, MachineState

CALL_SECONDS = 30 * 60.0
"""How long a Create, Configure or Delete may take, from the call to the state that it leads to (protocol rule 6)."""

DRAIN_SLACK_SECONDS = 15 * 60.0
"""How long a drain may take beyond its grace."""

EMPTY_GRACE_SECONDS = 30
"""The grace at the provider for a node that its operator reported empty (protocol rule 14)."""

TAKEN_BACK_GRACE_SECONDS = 120
"""The grace that pods get when the provider takes a machine back unasked (protocol rule 2)."""

_S = MachineState


class Step(enum.Enum):
    """How far a commitment has come. The values stand in the local file.

    A call on its way and the state that the call leads to are two steps. Only during the first may the provider not
    know of the call.
    """

    DECIDED = "decided"
    WAITING = "waiting"
    CREATE = "create"
    CREATING = "creating"
    BLOB = "blob"
    CONFIGURE = "configure"
    CONFIGURING = "configuring"
    INSTRUCTED = "instructed"
    DRAIN = "drain"
    DRAINING = "draining"
    DELETE = "delete"
    DELETING = "deleting"
    DOUBT = "doubt"


class Awaited(enum.Enum):
    """What a commitment waits for in a step."""

    FILE = "the commitment is on file"
    SESSION = "the operator has a session"
    USER_DATA = "the operator sends user data"
    EMPTY_NODE = "the operator has emptied the node, or the grace is over"
    ACK = "the provider answers the call"
    STATE = "the machine is seen in its next state"
    GET = "a Get shows the machine"


class StepRule(NamedTuple):
    """What holds in one step."""

    #: What the commitment waits for.
    awaits: Awaited
    #: The step in which the next life of the shard takes the commitment up.
    restored_as: Step
    #: The call that is on its way in this step.
    call: Call | None = None
    #: The step that follows when the call is acknowledged.
    acknowledged: Step | None = None
    #: The call that the operator's answer leads to.
    answered: Call | None = None
    #: The state of a machine that did not get where its acknowledged call was to take it.
    falls_back_to: MachineState | None = None


RULES: Mapping[Step, StepRule] = MappingProxyType(
    {
        Step.DECIDED: StepRule(Awaited.FILE, Step.WAITING),
        Step.WAITING: StepRule(Awaited.SESSION, Step.WAITING),
        Step.CREATE: StepRule(Awaited.ACK, Step.DOUBT, call=Call.CREATE, acknowledged=Step.CREATING),
        Step.CREATING: StepRule(Awaited.STATE, Step.DOUBT, falls_back_to=_S.SPECULATIVE),
        Step.BLOB: StepRule(Awaited.USER_DATA, Step.DOUBT, answered=Call.CONFIGURE),
        Step.CONFIGURE: StepRule(Awaited.ACK, Step.DOUBT, call=Call.CONFIGURE, acknowledged=Step.CONFIGURING),
        Step.CONFIGURING: StepRule(Awaited.STATE, Step.DOUBT, falls_back_to=_S.IDLE),
        Step.INSTRUCTED: StepRule(Awaited.EMPTY_NODE, Step.INSTRUCTED, answered=Call.DRAIN),
        Step.DRAIN: StepRule(Awaited.ACK, Step.DOUBT, call=Call.DRAIN, acknowledged=Step.DRAINING),
        Step.DRAINING: StepRule(Awaited.STATE, Step.DOUBT, falls_back_to=_S.CONFIGURED),
        Step.DELETE: StepRule(Awaited.ACK, Step.DOUBT, call=Call.DELETE, acknowledged=Step.DELETING),
        Step.DELETING: StepRule(Awaited.STATE, Step.DOUBT, falls_back_to=_S.IDLE),
        Step.DOUBT: StepRule(Awaited.GET, Step.DOUBT),
    }
)
"""The rule of every step."""


def _awaiting(*awaited: Awaited) -> frozenset[Step]:
    return frozenset(step for step, rule in RULES.items() if rule.awaits in awaited)


CALLING: Mapping[Step, Call] = {step: rule.call for step, rule in RULES.items() if rule.call is not None}
"""The steps in which a call is on its way, and the call."""

STEP_OF: Mapping[Call, Step] = {call: step for step, call in CALLING.items()}
"""The step in which each call is on its way."""

AT_PROVIDER = _awaiting(Awaited.STATE)
"""The steps in which the provider is at work on the machine."""

REVOCABLE = _awaiting(Awaited.FILE, Awaited.SESSION, Awaited.USER_DATA, Awaited.EMPTY_NODE)
"""The steps in which no call is on its way or at work, so that the commitment can end without the provider noticing."""

UNSENT = _awaiting(Awaited.FILE, Awaited.SESSION)
"""The steps in which nobody outside the shard knows of the commitment."""

DEAF = _awaiting(Awaited.FILE, Awaited.ACK, Awaited.GET)
"""The steps in which news of the machine has to wait for what the step awaits."""


class Goal(enum.Enum):
    """Where a commitment takes its machine."""

    SERVE = "Configured for a cluster"
    IDLE = "Idle"
    GONE = "Speculative"


class Move(enum.Enum):
    """What a commitment does next."""

    CREATE = "Create is called"
    DELETE = "Delete is called"
    REQUEST_BLOB = "the operator is asked for user data"
    CHECK_BINDING = "the stamp is compared, and another binding is emptied"
    EMPTY_NODE = "the operator is told to empty the node"
    AWAIT_CREATE = "Create goes on"
    AWAIT_DRAIN = "the drain goes on"
    AWAIT_DELETE = "Delete goes on"
    SUCCEED = "the commitment ends with success"
    FAIL = "the commitment ends as failed"
    DROP = "the commitment ends as dropped"


MOVES: Mapping[Goal, Mapping[MachineState, Move]] = MappingProxyType(
    {
        Goal.SERVE: {
            _S.SPECULATIVE: Move.CREATE,
            _S.CREATING: Move.AWAIT_CREATE,
            _S.IDLE: Move.REQUEST_BLOB,
            _S.CONFIGURING: Move.CHECK_BINDING,
            _S.CONFIGURED: Move.CHECK_BINDING,
            _S.DRAINING: Move.AWAIT_DRAIN,
            _S.DELETING: Move.AWAIT_DELETE,
            _S.FAILED: Move.FAIL,
        },
        Goal.IDLE: {
            _S.SPECULATIVE: Move.SUCCEED,
            _S.CREATING: Move.DROP,
            _S.IDLE: Move.SUCCEED,
            _S.CONFIGURING: Move.EMPTY_NODE,
            _S.CONFIGURED: Move.EMPTY_NODE,
            _S.DRAINING: Move.AWAIT_DRAIN,
            _S.DELETING: Move.AWAIT_DELETE,
            _S.FAILED: Move.FAIL,
        },
        Goal.GONE: {
            _S.SPECULATIVE: Move.SUCCEED,
            _S.CREATING: Move.DROP,
            _S.IDLE: Move.DELETE,
            _S.CONFIGURING: Move.EMPTY_NODE,
            _S.CONFIGURED: Move.EMPTY_NODE,
            _S.DRAINING: Move.AWAIT_DRAIN,
            _S.DELETING: Move.AWAIT_DELETE,
            _S.FAILED: Move.FAIL,
        },
    }
)
"""What a commitment with a goal does when its machine is seen in a state. A restart, a lost answer and a change that
nobody asked for therefore need no case of their own."""

LEADS_TO: Mapping[Move, tuple[Step, ...]] = MappingProxyType(
    {
        Move.CREATE: (Step.CREATE,),
        Move.DELETE: (Step.DELETE,),
        Move.REQUEST_BLOB: (Step.BLOB, Step.WAITING),
        Move.CHECK_BINDING: (Step.CONFIGURING, Step.INSTRUCTED, Step.DRAIN, Step.WAITING),
        Move.EMPTY_NODE: (Step.INSTRUCTED, Step.DRAIN, Step.WAITING),
        Move.AWAIT_CREATE: (Step.CREATING,),
        Move.AWAIT_DRAIN: (Step.DRAINING,),
        Move.AWAIT_DELETE: (Step.DELETING,),
        Move.SUCCEED: (),
        Move.FAIL: (),
        Move.DROP: (),
    }
)
"""The steps that a move may lead to; none where the move ends the commitment. A commitment waits where the cluster has
no session, and drains at once where its operator has had its time. Any call that is not legal in the machine's state
leads to a doubt instead."""


MAY_END: frozenset[Move] = frozenset(
    {Move.CHECK_BINDING, Move.EMPTY_NODE, Move.AWAIT_DRAIN, Move.SUCCEED, Move.FAIL, Move.DROP}
)
"""The moves that may end the commitment: the machine serves under the right stamp, it is another's, or it is where it
was to go, Failed or not to be had."""


def follows(step: Step) -> frozenset[Step]:
    """Every step in which a commitment can be next, by the tables above; it can end out of every step."""
    rule = RULES[step]
    if rule.acknowledged is not None:
        return frozenset({rule.acknowledged, Step.DOUBT})
    chosen = {after for move in Move for after in LEADS_TO[move]} | {Step.DOUBT, rule.restored_as}
    if rule.awaits in (Awaited.FILE, Awaited.USER_DATA):
        # A pause keeps a durable commitment from its first call, and user data that came too late is asked for anew.
        chosen.add(Step.WAITING)
    if rule.answered is not None:
        chosen.add(STEP_OF[rule.answered])
    return frozenset(chosen)


class RecoveryStep(enum.Enum):
    """How far the way out of Failed has come. Nothing of it is on file: the first list shows who is Failed."""

    RESTING = "resting"
    INSTRUCTED = "instructed"
    CALLING = "calling"
    DOUBT = "doubt"


RECOVERY_AWAITS: Mapping[RecoveryStep, Awaited | None] = MappingProxyType(
    {
        RecoveryStep.RESTING: None,
        RecoveryStep.INSTRUCTED: Awaited.EMPTY_NODE,
        RecoveryStep.CALLING: Awaited.ACK,
        RecoveryStep.DOUBT: Awaited.GET,
    }
)
"""What a recovery waits for besides its time."""

RECOVERY_CALLS: Mapping[bool, tuple[Call, ...]] = MappingProxyType(
    {True: (Call.DRAIN, Call.DELETE, Call.CREATE), False: (Call.DELETE, Call.DRAIN, Call.CREATE)}
)
"""The calls that may lead out of Failed, the first to try first: by whether the machine is bound to a cluster."""
