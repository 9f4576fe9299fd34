"""The columns that one decision reads, and the scratch columns it writes, as one tuple for the compiled walks."""

from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Places in `Work.scalar`.
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
LOWEST_VERSION = 10
SCALARS = 11

# Flags for arguments: numpy's, because for a literal argument numba would compile every function once more.
YES = cast("bool", np.bool_(True))
NO = cast("bool", np.bool_(False))

# Kinds of action, in `Work.action_kind`.
BOOTSTRAP = cast("int", np.int64(0))
PROVISION = cast("int", np.int64(1))
PREEMPT = cast("int", np.int64(2))

# Rows of `Work.machines`.
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
) = range(26)

# Rows of `Work.needs`.
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
) = range(28)

# Rows of `Work.clusters`.
(C_DAEMONS, C_REPORTED, C_PARTIAL, C_DISTURBED, C_FIRST, C_ALL_HEAD, C_ALL_TAIL, C_LIVE_HEAD, C_LIVE_TAIL) = range(9)

# Rows of `Work.kinds`: what is worked out once for all needs that ask for the same.
(KIND_POOL, KIND_VICTIM, KIND_VERSION) = range(3)

# Rows of `Work.cohorts`.
(K_SHAPE, K_TIER, K_PRICE, K_PROBABILITY, K_BUCKET, K_HEAD, K_END, K_TRIED, K_BUYER) = range(9)

# Rows of `Work.entries`.
(E_MACHINE, E_UNITS, E_VECTOR) = range(3)

# Rows of `Work.seats`.
(S_MACHINE, S_ROOM, S_UNITS, S_EXTRA_COHORT, S_REFUSED) = range(5)

# Rows of `Work.sums`.
(D_BOUND, D_OWN, D_NEWEST, D_TOUCHED) = range(4)

# Rows of `Work.shapes`.
(H_COUNT, H_HELD, H_LOWEST) = range(3)

# Rows of `Work.spreads`.
(P_TOPOLOGY, P_SKEW, P_HARD) = range(3)

# Rows of `Work.actions`.
(A_KIND, A_MACHINE, A_NEED, A_GRACE, A_OUTRANKED, A_COHORT) = range(6)


class Work(NamedTuple):
    """Everything that the compiled walks read and write: groups of columns, a row of the group a column."""

    machines: Array
    needs: Array
    clusters: Array
    kinds: Array
    cohorts: Array
    entries: Array
    seats: Array
    sums: Array
    shapes: Array
    spreads: Array
    actions: Array
    scalar: Array
    allocatable: Array
    matches: Array
    domain: Array
    domain_rank: Array
    domain_count: Array
    daemon_base: Array
    daemon_start: Array
    daemon_requirement: Array
    daemon_extra: Array
    cluster_least: Array
    need_aggregate: Array
    unit: Array
    spread_start: Array
    cohort_list: Array
    cohort_list_start: Array
    cohort_list_offset: Array
    pool: Array
    free: Array
    vector: Array
    configured: Array
    level: Array
    level_least: Array
    saved_gap: Array
    score_weights: Array
