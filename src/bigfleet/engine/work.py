"""The map of the heap that one decision works in: scalars, lengths, and where each table and column begins."""

from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class _Places:
    """Numbers the places of the header, one group of names after the other."""

    def __init__(self, first: int) -> None:
        self.end = first

    def take(self, count: int) -> range:
        """The next so many places."""
        begin, self.end = self.end, self.end + count
        return range(begin, self.end)


# Scalars.
NOW = 0
ENTRIES = 1
ACTIONS = 2
NEXT_BINDING = 3
OVERFLOW = 4
VECTORS = 5
SEATS = 6
FIRST_SPARE = 7
SPARES = 8
VERSION = 9
ARENA = 10
SEEN = 11
FIRST_CLASS = 12
LOOSE = 13
VICTIMS = 14
SCALARS = 15

_places = _Places(SCALARS)

# The heap begins with the scalars above, then these lengths, then where each table begins.
(
    LEN_MACHINES,
    LEN_NEEDS,
    LEN_CLUSTERS,
    LEN_KINDS,
    LEN_STARTS,
    LEN_COHORTS,
    LEN_ENTRIES,
    LEN_SEATS,
    LEN_SUMS,
    LEN_SHAPES,
    LEN_SPREADS,
    LEN_ACTIONS,
    LEN_T_VECTOR,
    LEN_T_DOMAIN_COUNT,
    LEN_T_DAEMON_START,
    LEN_T_DAEMON_REQUIREMENT,
    LEN_T_SPREAD_START,
    LEN_T_COHORT_LIST,
    LEN_T_COHORT_LIST_START,
    LEN_T_COHORT_LIST_OFFSET,
    LEN_T_POOL,
    LEN_T_CONFIGURED,
    LEN_T_ARENA,
    LEN_T_WANTED,
    LEN_T_LEVEL_LEAST,
    LEN_T_SAVED_GAP,
    LEN_T_SCORE_WEIGHTS,
    WIDTH,
    MOST_DOMAINS,
    T_ALLOCATABLE,
    T_DAEMON_BASE,
    T_DAEMON_EXTRA,
    T_CLUSTER_LEAST,
    T_NEED_AGGREGATE,
    T_UNIT,
    T_FREE,
    T_VECTOR,
    T_DOMAIN,
    T_DOMAIN_RANK,
    T_LEVEL,
    T_DOMAIN_COUNT,
    T_DAEMON_START,
    T_DAEMON_REQUIREMENT,
    T_SPREAD_START,
    T_COHORT_LIST,
    T_COHORT_LIST_START,
    T_COHORT_LIST_OFFSET,
    T_POOL,
    T_CONFIGURED,
    T_ARENA,
    T_WANTED,
    T_VICTIM,
    T_STANDING,
    T_LEVEL_LEAST,
    T_SAVED_GAP,
    T_SCORE_WEIGHTS,
) = _places.take(56)

# Flags for arguments: numpy's, because for a literal argument numba would compile every function once more.
YES = cast("bool", np.bool_(True))
NO = cast("bool", np.bool_(False))

# Kinds of action, in A_KIND.
BOOTSTRAP = cast("int", np.int64(0))
PROVISION = cast("int", np.int64(1))
PREEMPT = cast("int", np.int64(2))

# Where each column of `machines` begins.
(
    M_SHAPE,
    M_STATE,
    M_CLUSTER,
    M_BOUND,
    M_NUMBER,
    M_OWN,
    M_PRICE,
    M_PROBABILITY,
    M_FLAGS,
    M_RANK,
    M_DRAIN_SECONDS,
    M_NOT_BEFORE,
    M_STAMP_PRIORITY,
    M_STAMP_INTERRUPTION,
    M_STAMP_RECLAMATION,
    M_STAKES_PRIORITY,
    M_STAKES_INTERRUPTION,
    M_STAKES_RECLAMATION,
    M_ALL_NEXT,
    M_LIVE_NEXT,
    M_OWN_NEXT,
    M_ACTION,
    M_SERVES,
    M_STOOD,
    M_STOOD_PINNED,
    M_GONE,
    M_FULL,
    M_COHORT,
    M_DRAWN,
) = _places.take(29)

# Where each column of `needs` begins.
(
    N_CLUSTER,
    N_REQUIREMENT,
    N_UNIT,
    N_ASKED,
    N_OWN,
    N_LIMIT,
    N_TWIN,
    N_PRIORITY,
    N_INTERRUPTION,
    N_RECLAMATION,
    N_TOPOLOGY,
    N_SPREAD,
    N_DIVISIBLE,
    N_ACTS,
    N_LATER,
    N_FIRST,
    N_COUNT,
    N_MISSING,
    N_DOMAIN,
    N_SATISFIABLE,
    N_SAVED_FIRST,
    N_SAVED_COUNT,
    N_SAVED_MISSING,
    N_SAVED_DOMAIN,
    N_SAVED_SATISFIABLE,
    N_OWN_HEAD,
    N_OWN_TAIL,
    N_KIND,
    N_WALK,
    N_NEAR,
) = _places.take(30)

# Where each column of `clusters` begins.
(C_DAEMONS, C_REPORTED, C_PARTIAL, C_DISTURBED, C_FIRST, C_ALL_HEAD, C_ALL_TAIL, C_LIVE_HEAD, C_LIVE_TAIL, C_EPOCH) = (
    _places.take(10)
)

# Where each column of `kinds`: what is worked out once for all needs that ask for the same.
(
    KIND_POOL,
    KIND_TOTALS,
    KIND_LIST,
    KIND_LISTED,
    KIND_EXTRA,
    KIND_EXTRA_PRIORITY,
    KIND_EXTRA_VERSION,
    KIND_LEVELS,
) = _places.take(8)

# Where each column of `starts` begins: how far walks for one kind of need came on a cluster's list, and in which epoch.
(W_PAST, W_EPOCH) = _places.take(2)

# Where each column of `cohorts` begins.
(K_SHAPE, K_TIER, K_PRICE, K_PROBABILITY, K_BUCKET, K_HEAD, K_LEFT, K_CLASS, K_TRIED, K_BUYER) = _places.take(10)

# Where each column of `entries` begins.
(E_MACHINE, E_UNITS, E_VECTOR) = _places.take(3)

# Where each column of `seats` begins.
(S_MACHINE, S_ROOM, S_UNITS, S_EXTRA_COHORT, S_HEAD, S_REFUSED, S_QUEUE, S_BEHIND, S_TURN) = _places.take(9)

# Where each column of `sums` begins.
(D_BOUND, D_OWN, D_NEWEST, D_TOUCHED, D_EXTRA, D_EXTRA_TOUCHED, D_POOL) = _places.take(7)

# Where each column of `shapes` begins.
(H_COUNT, H_HELD, H_WANTED) = _places.take(3)

# Where each column of `spreads` begins.
(P_TOPOLOGY, P_SKEW, P_HARD) = _places.take(3)

# Where each column of `actions` begins.
(A_KIND, A_MACHINE, A_NEED, A_GRACE, A_OUTRANKED, A_COHORT) = _places.take(6)

HEADER = _places.end


class Work(NamedTuple):
    """What the compiled walks are given: one heap of whole numbers that holds every table, and who matches what.

    Two arguments where there would be forty make calls cheap and compiling fast; `heap.py` reads and writes it.
    """

    h: Array
    matches: Array
