"""The map of the heap that decisions work in: scalars, lengths, and where each column begins."""


class _Places:
    """Numbers the places of the header, one group of names after the other."""

    def __init__(self) -> None:
        self.end = 0

    def take(self, count: int) -> range:
        """The next so many places."""
        begin, self.end = self.end, self.end + count
        return range(begin, self.end)


_places = _Places()

# The heap begins with scalars.
(
    NOW,
    ENTRIES,
    ACTIONS,
    NEXT_BINDING,
    OVERFLOW,
    VECTORS,
    FIRST_SPARE,
    SPARES,
    SPARES_IN_TURN,
    VERSION,
    ARENA,
    SEEN,
    FIRST_CLASS,
    LOOSE,
    VICTIMS,
    LISTING,
    OFFERS,
    OFFERED,
    IN_ORDER,
    ASIDE,
    HEAPS,
    BY_RULE,
    RULES,
    RISES,
    WIDTH,
    MOST_DOMAINS,
    LEN_MACHINES,
    LEN_SLOTS,
    LEN_CLUSTERS,
    LEN_COHORTS,
    LEN_ENTRIES,
    LEN_SEATS,
    LEN_SHAPES,
    LEN_ACTIONS,
    LEN_VECTORS,
    LEN_ARENA,
    LEN_WANTED,
    LEN_VICTIMS,
    LEN_LEVELS,
) = _places.take(39)
SCALARS = _places.end

# Then it says where each column begins: first those whose entries are 8 bits wide, then those of 32, then those of 64.
# Machines.
(
    M_STATE,
    M_FLAGS,
    M_LATER,
    M_STAMP_INTERRUPTION,
    M_STAMP_RECLAMATION,
    M_STAKES_INTERRUPTION,
    M_STAKES_RECLAMATION,
    M_STOOD_PINNED,
    M_GONE,
    M_FULL,
    M_DRAWN,
) = _places.take(11)

NARROW = _places.end
"""The first column whose entries are 32 bits wide."""

(
    M_SHAPE,
    M_CLUSTER,
    M_BOUND,
    M_OWN,
    M_PROBABILITY,
    M_RANK,
    M_DRAIN_SECONDS,
    M_STAMP_PRIORITY,
    M_STAKES_PRIORITY,
    M_LISTED,
    M_ALL_NEXT,
    M_LIVE_NEXT,
    M_OWN_NEXT,
    M_ACTION,
    M_SERVES,
    M_STOOD,
    M_COHORT,
) = _places.take(17)

# Needs, by slot.
(
    N_RANK,
    N_CLUSTER,
    N_REQUIREMENT,
    N_UNIT,
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
    N_DOMAIN,
    N_SATISFIABLE,
    N_SAVED_FIRST,
    N_SAVED_COUNT,
    N_SAVED_DOMAIN,
    N_SAVED_SATISFIABLE,
    N_OWN_HEAD,
    N_OWN_TAIL,
    N_KIND,
    N_DESK,
    N_WALK,
) = _places.take(28)

# What needs take. No machine holds more units than pods, so their number fits.
(E_MACHINE, E_UNITS, E_VECTOR) = _places.take(3)

# Cohorts of the free pool, and in which order their machines stand.
(COHORT_SHAPE, COHORT_TIER, COHORT_PROBABILITY, COHORT_BUCKET, COHORT_HEAD, COHORT_LEFT, COHORT_CLASS, COHORT_BUYER) = (
    _places.take(8)
)
T_POOL = _places.take(1)[0]

# Acquisitions.
(A_KIND, A_MACHINE, A_NEED, A_GRACE, A_COHORT) = _places.take(5)

# Where in the arena the machines of a cluster are listed that one requirement list admits, in which epoch of it, and
# the last machine looked at for that; behind them stands a bit for each. And where those stand for one kind of need.
(R_EPOCH, R_FROM, R_TO, R_LAST) = _places.take(4)
(W_EPOCH, W_DESK, W_BITS) = _places.take(3)

# The need of a cluster that has a key, while its machines are linked.
T_KEY_NEED = _places.take(1)[0]

WIDE = _places.end
"""The first column whose entries are 64 bits wide."""

(M_NUMBER, M_PRICE) = _places.take(2)
(N_ASKED, N_MISSING, N_NEAR, N_SAVED_MISSING) = _places.take(4)
COHORT_PRICE = _places.take(1)[0]
A_OUTRANKED = _places.take(1)[0]

# Clusters.
(
    C_DAEMONS,
    C_REPORTED,
    C_PARTIAL,
    C_DISTURBED,
    C_LOOKED,
    C_EXCESS,
    C_FIRST,
    C_ALL_HEAD,
    C_ALL_TAIL,
    C_LIVE_HEAD,
    C_LIVE_TAIL,
    C_EPOCH,
) = _places.take(12)

# What is worked out once in a decision for all needs that ask for the same.
(
    KIND_POOL,
    KIND_TOTALS,
    KIND_LIST,
    KIND_LISTED,
    KIND_EXTRA,
    KIND_EXTRA_PRIORITY,
    KIND_EXTRA_VERSION,
    KIND_LEVELS,
    KIND_ELIGIBLE,
) = _places.take(9)

# Machines that a gang or a spread row looks at.
(
    S_MACHINE,
    S_ROOM,
    S_DOMAIN,
    S_UNITS,
    S_EXTRA_COHORT,
    S_HEAD,
    S_REFUSED,
    S_QUEUE,
    S_BEHIND,
    S_FROM,
    S_IN_TURN,
    S_TURN,
) = _places.take(12)

# Domains of the topology that a gang looks at.
(D_BOUND, D_OWN, D_NEWEST, D_TOUCHED, D_EXTRA, D_EXTRA_TOUCHED, D_POOL) = _places.take(7)

# Shapes.
(SHAPE_COUNT, SHAPE_HELD, SHAPE_WANTED, SHAPE_POOL, SHAPE_LEFT, SHAPE_BEFORE) = _places.take(6)

# Constraints of spreads.
(SPREAD_TOPOLOGY, SPREAD_SKEW, SPREAD_HARD) = _places.take(3)

# Tables of vectors and lists.
(
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
    T_ARENA,
    T_WANTED,
    T_VICTIM,
    T_STANDING,
    T_LEVEL_LEAST,
    T_LEVEL_COUNT,
    T_LEVEL_DOMAINS,
    T_LEVEL_USED,
    T_LEVEL_USED_COUNT,
    T_WAITING,
    T_WAITING_LAST,
    T_SAVED_GAP,
    T_SCORE_WEIGHTS,
) = _places.take(31)

HEADER = _places.end

MACHINE_COLUMNS = (*range(M_STATE, M_DRAWN + 1), *range(M_SHAPE, M_COHORT + 1), M_NUMBER, M_PRICE)
COHORT_COLUMNS = (*range(COHORT_SHAPE, COHORT_BUYER + 1), COHORT_PRICE)
ACTION_COLUMNS = (*range(A_KIND, A_COHORT + 1), A_OUTRANKED)


def part_of(place: int) -> str:
    """What a column is for, in a word."""
    if place in MACHINE_COLUMNS:
        return "machines"
    if N_RANK <= place <= N_WALK or N_ASKED <= place <= N_SAVED_MISSING or place == T_NEED_AGGREGATE:
        return "rows"
    if place in (E_MACHINE, E_VECTOR, E_UNITS, T_VECTOR):
        return "taken"
    if place in COHORT_COLUMNS or place in ACTION_COLUMNS or place == T_POOL:
        return "pool"
    return "free" if place == T_FREE else "other"
