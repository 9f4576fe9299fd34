"""The map of the heap: every number and every column that a decision works in, one name each.

Import it as `from bigfleet.engine.heap import columns as c`. A scalar is read as `w.h[c.NOW]`, an entry of a column as
`at(w, c.M_STATE, machine)`, one dimension of a vector as `cell(w, c.T_FREE, machine, d)`. Numba takes a module's
numbers as constants, so a name costs nothing at run time.

What the prefix of a column says about the number by which its entries are found:

    M_         a machine: its row in the inventory
    N_         a need: its slot in the table of needs; also called a row
    E_         an entry: what one need takes from one machine; a need's entries stand side by side
    C_         a cluster
    COHORT_    a cohort: free machines that are equal to every need; a class is a cohort of cohorts; spares follow
    A_         an acquisition of this decision
    ADMITTED_  the machines of one cluster that one requirement list admits
    FITTING_   the machines of one cluster that may have room for one kind of need
    KIND_      a kind of need: all needs that ask for the same of machines and whose clusters run the same daemons
    S_         a seat: a machine that the gang or spread row being served looks at
    D_         a domain of the topology of the gang being served
    SHAPE_     a shape: machines that agree in everything that matching looks at
    SPREAD_    a spread: one constraint of a row that is spread
    T_         none of these: a table with vectors, or with a number of its own that its line names

LEN_ is the room that a column has, MOST_ the largest of several counts. NONE stands for "there is none" unless a line
says otherwise.
"""


class _Places:
    """Numbers the places of the heap's header, one name after the other."""

    def __init__(self) -> None:
        self.end = 0

    def take(self) -> int:
        """The next place."""
        self.end += 1
        return self.end - 1


_places = _Places()
_next = _places.take

# The heap begins with scalars.
NOW = _next()  #: the time of the decision, in seconds
ENTRIES = _next()  #: entries in use
ACTIONS = _next()  #: acquisitions so far, those taken back included
NEXT_BINDING = _next()  #: the number that the next binding gets
OVERFLOW = _next()  #: the LEN_ of the column that ran out of room; 0 while none has
VECTORS = _next()  #: vectors of T_VECTOR in use
FIRST_SPARE = _next()  #: the number of the first spare: a cohort of one machine that was bought in this decision
SPARES = _next()  #: spares so far
SPARES_IN_TURN = _next()  #: spares that phase 1 made; they stand in the order of their buyers
VERSION = _next()  #: how often phase 2 has changed what needs take or who may be a victim
ARENA_END = _next()  #: cells of T_ARENA in use
SEATS_SEEN = _next()  #: seats that the choice of a gang's domain has filled
FIRST_CLASS = _next()  #: the number of the first class; cohorts proper come before it
SPARE_RETURNED = _next()  #: 1 once an acquisition was taken back, so that its spare is open to everybody
VICTIMS = _next()  #: entries of T_VICTIM in use
LISTS_IN_USE = _next()  #: 1 during phase 1: only then do needs walk along ADMITTED_ and FITTING_ lists
OFFERS_BEGIN = _next()  #: where in the arena the offers of the row being served begin
OFFERS_ROOM = _next()  #: how many offers there is room for, which is how long each column of offers is
OFFER_COUNT = _next()  #: offers so far
OFFERS_ASIDE = _next()  #: offers put aside until the emptiest domains hold more
OFFER_HEAPS = _next()  #: binary heaps of offers that are not empty
COARSEST_SPREAD = _next()  #: the spread of the row being served that has the fewest domains
ROW_SPREADS = _next()  #: spreads of the row being served
LEVEL_RISES = _next()  #: how often the emptiest domains of a spread have come to hold more; only ever compared
WIDTH = _next()  #: dimensions of a vector of resources
MOST_DOMAINS = _next()  #: domains of the topology that has most
LEN_MACHINES = _next()
LEN_SLOTS = _next()
LEN_CLUSTERS = _next()
LEN_COHORTS = _next()
LEN_ENTRIES = _next()
LEN_SEATS = _next()
LEN_SHAPES = _next()
LEN_ACTIONS = _next()
LEN_VECTORS = _next()
LEN_ARENA = _next()
LEN_REQUIREMENTS = _next()  #: requirement lists
LEN_VICTIMS = _next()
MOST_SPREADS = _next()  #: spreads of the row that has most
SCALARS = _places.end
"""How many scalars there are."""

BEGIN_AT_ZERO = (
    ACTIONS, OVERFLOW, SPARES, SPARES_IN_TURN, VERSION, ARENA_END, SEATS_SEEN, SPARE_RETURNED, VICTIMS, LISTS_IN_USE,
)  # fmt: skip
"""Scalars that are 0 when a decision begins. Entries and vectors of sleeping clusters stay from one to the next."""

# Then the heap says where each column begins: first columns with entries of 8 bits, then of 32, then of 64.
M_STATE = _next()  #: a `MachineState`, or VACANT
M_FLAGS = _next()  #: bits of `codes`: EMPTY, PROTECTED and so on
M_NOT_YET = _next()  #: 1 while the machine may not be acquired or preempted: its `not_before` lies in the future
M_STAMP_INTERRUPTION = _next()  #: the interruption bucket of its stamp
M_STAMP_RECLAMATION = _next()  #: the reclamation bucket of its stamp
M_STAKES_INTERRUPTION = _next()  #: the interruption bucket of pods on it that no request speaks for
M_STAKES_RECLAMATION = _next()  #: the reclamation bucket of pods on it that no request speaks for
M_SERVED_PINNED = _next()  #: 1 if it served a PINNED need at any time in this decision
M_VICTIM_TRIED = _next()  #: 1 while the spread row being served has seated it as a victim, or refused it
M_FULL = _next()  #: 1 if not even its cluster's smallest units fit any more
M_DRAWN = _next()  #: 1 if it was drawn from its cohort

NARROW = _places.end
"""The first column whose entries are 32 bits wide."""

M_SHAPE = _next()  #: its shape
M_CLUSTER = _next()  #: the cluster that its provider names
M_BOUND = _next()  #: the cluster that it counts for, by commitment or because it runs there
M_STAMPED_FOR = _next()  #: the key of the need that it was bound for; not to be confused with M_SERVES
M_PROBABILITY = _next()  #: of an interruption within an hour, in millionths
M_RANK = _next()  #: compares as machine ids do
M_DRAIN_SECONDS = _next()  #: how long a drain of it takes
M_STAMP_PRIORITY = _next()  #: the priority of its stamp
M_STAKES_PRIORITY = _next()  #: the priority of pods on it that no request speaks for
M_LISTED = _next()  #: the cluster on whose list of all machines it stands between decisions
M_ALL_NEXT = _next()  #: the next on its cluster's list of all machines, in binding order
M_ROOM_NEXT = _next()  #: the next on its cluster's list of machines with room, in binding order
M_OWN_NEXT = _next()  #: the next on the list of a gang's own machines
M_ACTION = _next()  #: the acquisition of this decision that it belongs to
M_SERVES = _next()  #: the first need in the order that takes from it now
M_STANDS_BY = _next()  #: the first need in the order that took from it at any time in this decision
M_COHORT = _next()  #: its cohort in the free pool

N_RANK = _next()  #: its place in the order in which needs are served
N_CLUSTER = _next()  #: its cluster
N_REQUIREMENT = _next()  #: its requirement list
N_UNIT = _next()  #: its unit, a vector of T_UNIT
N_KEY = _next()  #: its need key; machines bound for it carry the same in M_STAMPED_FOR
N_LIMIT = _next()  #: the most units of its profile on one machine; 0 for no limit
N_TWIN = _next()  #: the next row that shares the limit with it, in a ring; the row itself if none does
N_PRIORITY = _next()  #: its priority
N_INTERRUPTION = _next()  #: its interruption bucket
N_RECLAMATION = _next()  #: its reclamation bucket
N_TOPOLOGY = _next()  #: the topology in one domain of which a gang must stand; below 0 if it is no gang
N_SPREAD = _next()  #: its set of spreads; T_SPREAD_START says which they are
N_DIVISIBLE = _next()  #: 1 if it asks for an amount and not for units
N_ACTS = _next()  #: 1 if it may acquire and preempt: its cluster is live and nothing holds it out
N_NEXT = _next()  #: the next need of its cluster, in order
N_FIRST_ENTRY = _next()  #: the first of its entries
N_ENTRIES = _next()  #: how many entries it has
N_DOMAIN = _next()  #: the domain that a gang stands in
N_SATISFIABLE = _next()  #: 0 if no domain could hold the gang
N_SAVED_FIRST_ENTRY = _next()  #: N_FIRST_ENTRY when the need was saved
N_SAVED_ENTRIES = _next()  #: N_ENTRIES when the need was saved
N_SAVED_DOMAIN = _next()  #: N_DOMAIN when the need was saved
N_SAVED_SATISFIABLE = _next()  #: N_SATISFIABLE when the need was saved
N_OWN_HEAD = _next()  #: the first machine that is stamped for the gang
N_OWN_TAIL = _next()  #: the last machine that is stamped for the gang
N_KIND = _next()  #: its kind
N_ADMITTED = _next()  #: the ADMITTED_ list of its cluster and requirement list
N_FITTING = _next()  #: the FITTING_ list of its cluster and kind; NONE if its own entries change what fits

E_MACHINE = _next()  #: the machine
E_UNITS = _next()  #: how many units; no machine holds more units than pods, so 32 bits suffice
E_VECTOR = _next()  #: what a divisible need takes, a vector of T_VECTOR; NONE for whole units

COHORT_SHAPE = _next()  #: the shape of its machines; of a class, of one of them
COHORT_TIER = _next()  #: AT_ONCE or TO_BE_CREATED
COHORT_PROBABILITY = _next()  #: as M_PROBABILITY
COHORT_RECLAMATION = _next()  #: as M_STAMP_RECLAMATION
COHORT_HEAD = _next()  #: where in T_POOL its first machine stands that may not have been drawn
COHORT_LEFT = _next()  #: machines that nobody has drawn
COHORT_CLASS = _next()  #: of a cohort proper, its class
COHORT_BUYER = _next()  #: of a spare, the need that bought it; NONE otherwise and once it is given back
T_POOL = _next()  #: the machines of the pool, cohort by cohort and once more class by class, then one for each spare

A_KIND = _next()  #: BOOTSTRAP, PROVISION or PREEMPT; NONE if it was taken back
A_MACHINE = _next()  #: the machine
A_NEED = _next()  #: the need that it is for
A_GRACE = _next()  #: of a PREEMPT, the seconds that pods are given
A_COHORT = _next()  #: the spare that was made for it

ADMITTED_EPOCH = _next()  #: the C_EPOCH in which the list was made
ADMITTED_FROM = _next()  #: where in the arena the list begins
ADMITTED_TO = _next()  #: where it ends; a bit for each machine follows, cleared once the machine is full
ADMITTED_LAST = _next()  #: the last machine that was looked at for it; what was bound later follows that one
FITTING_EPOCH = _next()  #: the C_EPOCH in which its bits were copied
FITTING_FROM = _next()  #: the ADMITTED_FROM of the list that its bits were copied from
FITTING_BITS = _next()  #: where in the arena its bits begin, cleared once a machine is too full for the kind

T_KEY_NEED = _next()  #: by need key: the need that has it plus 1, while a cluster's machines are put on gangs' lists

WIDE = _places.end
"""The first column whose entries are 64 bits wide."""

M_BINDING = _next()  #: its number in the order of all bindings; 0 if it has none
M_PRICE = _next()  #: millionths of a dollar an hour
N_ASKED = _next()  #: units that it asks for
N_MISSING = _next()  #: units that it still lacks; of a divisible need 1 if it lacks anything
N_MOST_BOUND = _next()  #: units that its cluster's machines held for the gang in phase 1, in the domain with most
N_SAVED_MISSING = _next()  #: N_MISSING when the need was saved
COHORT_PRICE = _next()  #: as M_PRICE
A_OUTRANKED = _next()  #: of a PREEMPT, the priority that the victim stood at; LARGE if it served nothing

C_DAEMONS = _next()  #: its set of daemons
C_REPORTED = _next()  #: 1 if it has sent a roll-up
C_PARTIAL = _next()  #: 1 if its roll-up leaves out pods, so that only empty machines may be taken
C_DISTURBED = _next()  #: what this decision did to it: 0, BOUGHT or ROBBED
C_RESTS_ON = _next()  #: what its outcome rested on beyond its own machines and needs: bits PRESENCE and TOTALS
C_EXCESS = _next()  #: 1 if a Configured machine of it serves no need
C_FIRST_NEED = _next()  #: the first of its needs
C_ALL_HEAD = _next()  #: the first on its list of all machines
C_ALL_TAIL = _next()  #: the last on its list of all machines
C_ROOM_HEAD = _next()  #: the first on its list of machines with room
C_ROOM_TAIL = _next()  #: the last on its list of machines with room
C_EPOCH = _next()  #: how often that list was made; ADMITTED_ and FITTING_ lists of an earlier epoch are void

# Each of these is worked out once in a decision for all needs of a kind, and NONE until then.
KIND_POOL = _next()  #: the most units that the cohorts of any domain hold
KIND_TOTALS = _next()  #: where in the arena the units stand that all machines of each domain would hold
KIND_LIST = _next()  #: where in the arena its domains are listed, smallest first
KIND_LISTED = _next()  #: how many domains are listed
KIND_EXTRA = _next()  #: the most units that spares and victims of any domain hold
KIND_EXTRA_PRIORITY = _next()  #: the priority for which KIND_EXTRA holds
KIND_EXTRA_VERSION = _next()  #: the VERSION for which KIND_EXTRA holds
KIND_LEVELS = _next()  #: where in the arena the number of eligible domains stands, spread by spread
KIND_ELIGIBLE = _next()  #: the first domain with an eligible machine plus 1; 0 if there is none

S_MACHINE = _next()  #: the machine
S_ROOM = _next()  #: units that still fit
S_DOMAIN = _next()  #: its domain, where a gang that is not spread looks
S_UNITS = _next()  #: units placed on it
S_COHORT = _next()  #: the cohort that it is bought from, or VICTIM; NONE for a machine of the cluster
S_COHORT_HEAD = _next()  #: the COHORT_HEAD before it was drawn, to put it back
S_REFUSED = _next()  #: no seat but a list: victims that were tried in vain
S_QUEUE = _next()  #: no seat but a binary heap: seats that may take a unit, by turn
S_WAITING_NEXT = _next()  #: the next seat that waits for the same domain
S_WAITED_FOR = _next()  #: the domain that it has just waited for, as a place of T_WAITING
S_BY_TURN = _next()  #: by turn: the seat
S_TURN = _next()  #: its turn

D_BOUND = _next()  #: units that the cluster's machines in it hold
D_OWN = _next()  #: units that the gang's own machines in it hold
D_NEWEST = _next()  #: the newest M_BINDING among the others in it; NEVER if it needs purchases
D_TOUCHED = _next()  #: no domain but a list: domains with D_BOUND above 0
D_EXTRA = _next()  #: units that its spares and victims hold
D_EXTRA_TOUCHED = _next()  #: no domain but a list: domains with D_EXTRA above 0
D_POOL = _next()  #: scratch for sums over the pool; 0 in between

SHAPE_COUNT = _next()  #: its machines in any state but Failed
SHAPE_HELD = _next()  #: 1 while it is held out
SHAPE_WANTED = _next()  #: the highest priority of a need that might preempt machines of it
SHAPE_POOL = _next()  #: its machines in the free pool when the decision began
SHAPE_LEFT = _next()  #: its machines that phase 1 of the last decision left in the pool
SHAPE_BEFORE = _next()  #: its SHAPE_COUNT in the last decision

SPREAD_TOPOLOGY = _next()  #: the topology over whose domains units are spread
SPREAD_SKEW = _next()  #: by how much a domain may hold more than the emptiest
SPREAD_HARD = _next()  #: 1 for a rule, 0 for a wish

# By shape, set of daemons, unit and so on: vectors of resources.
T_ALLOCATABLE = _next()  #: by shape: what a machine has
T_DAEMON_BASE = _next()  #: by set of daemons: what they take on every node
T_DAEMON_EXTRA = _next()  #: by extra of a set: what a daemon takes where its requirements are met
T_CLUSTER_LEAST = _next()  #: by cluster: the least that any unit asks of each dimension
T_GAP = _next()  #: by need: what a divisible need still lacks
T_UNIT = _next()  #: by unit: its size
T_FREE = _next()  #: by machine: what nobody takes
T_VECTOR = _next()  #: by E_VECTOR: what an entry of a divisible need takes
T_DOMAIN = _next()  #: by topology and shape: the domain
T_DOMAIN_RANK = _next()  #: by topology and domain: compares as the domains' values do
T_LEVEL = _next()  #: by spread of the row being served and domain: units in it
T_DOMAIN_COUNT = _next()  #: by topology: how many domains it has
T_DAEMON_START = _next()  #: by set of daemons: its first extra; the next set's is where its extras end
T_DAEMON_REQUIREMENT = _next()  #: by extra: its requirement list
T_SPREAD_START = _next()  #: by set of spreads: its first spread; the next set's is where its spreads end
T_COHORT_LIST = _next()  #: cohorts proper, topology by topology and domain by domain
T_COHORT_LIST_START = _next()  #: by topology and domain: where its cohorts begin in T_COHORT_LIST
T_COHORT_LIST_OFFSET = _next()  #: by topology: where its domains begin in T_COHORT_LIST_START
T_ARENA = _next()  #: what is worked out once a decision, given out piece by piece
T_WANTED = (
    _next()
)  #: by requirement list: the highest priority of a need with it; in `wake`, 1 if the pool offers it more
T_VICTIM = _next()  #: the machines that may be preempted, lowest standing first
T_STANDING = _next()  #: beside T_VICTIM: the priority that each stood at when it was listed
T_LEVEL_LEAST = _next()  #: by spread of the row being served: units in its emptiest domains
T_LEVEL_COUNT = _next()  #: by spread of the row being served: how many domains are that empty
T_LEVEL_DOMAINS = _next()  #: by spread of the row being served: domains with an eligible machine
T_LEVEL_USED = _next()  #: by spread of the row being served: its domains that hold a unit, listed
T_LEVEL_USED_COUNT = _next()  #: by spread of the row being served: how many are listed
T_WAITING = _next()  #: by spread of the row being served and domain: the first seat that waits for it plus 1
T_WAITING_LAST = _next()  #: by spread of the row being served and domain: the last seat that waits for it
T_SAVED_GAP = _next()  #: by dimension: the T_GAP of the need that phase 2 serves, before it was served again
T_SCORE_WEIGHTS = _next()  #: by WEIGHT_PRIORITY and so on: the weights of a victim's score, in billionths

HEADER = _places.end
"""How long the header is: scalars, and where each column begins."""


def _with_prefix(prefix: str) -> tuple[int, ...]:
    return tuple(place for name, place in globals().items() if name.startswith(prefix))


MACHINE_COLUMNS = _with_prefix("M_")
NEED_COLUMNS = _with_prefix("N_")
ENTRY_COLUMNS = _with_prefix("E_")
CLUSTER_COLUMNS = _with_prefix("C_")
COHORT_COLUMNS = _with_prefix("COHORT_")
ACTION_COLUMNS = _with_prefix("A_")
ADMITTED_COLUMNS = _with_prefix("ADMITTED_")
FITTING_COLUMNS = _with_prefix("FITTING_")
KIND_COLUMNS = _with_prefix("KIND_")
SEAT_COLUMNS = _with_prefix("S_")
DOMAIN_COLUMNS = _with_prefix("D_")
SHAPE_COLUMNS = _with_prefix("SHAPE_")


def part_of(place: int) -> str:
    """What a column is for, in a word."""
    if place in MACHINE_COLUMNS:
        return "machines"
    if place in NEED_COLUMNS or place == T_GAP:
        return "rows"
    if place in ENTRY_COLUMNS or place == T_VECTOR:
        return "taken"
    if place in COHORT_COLUMNS or place in ACTION_COLUMNS or place == T_POOL:
        return "pool"
    return "free" if place == T_FREE else "other"
