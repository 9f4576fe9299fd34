"""Values that walks put into columns and pass to each other.

They are numpy's numbers and not Python's. Numba compiles a function once more for each Python literal that it is given
as an argument, and once in all for numpy's.
"""

from typing import cast

import numpy as np

NONE = cast("int", np.int64(-1))
"""No machine, need, cluster, domain or place: what a link or a number says when there is none."""
ZERO = cast("int", np.int64(0))
ONE = cast("int", np.int64(1))
LARGE = cast("int", np.int64(1 << 62))
"""More than any amount, count or number of a binding that occurs."""
LOWEST = cast("int", np.int64(-(1 << 62)))
"""Below every priority."""
NEVER = LARGE
"""In `D_NEWEST`: newer than any binding. A domain that needs a purchase counts as bound that late."""
YES = cast("bool", np.bool_(True))
NO = cast("bool", np.bool_(False))

# In C_DISTURBED, as bits: what the decision did to the cluster.
BOUGHT = cast("int", np.int64(1))
"""The decision bought a machine for the cluster."""
ROBBED = cast("int", np.int64(2))
"""The decision took a machine from the cluster, or let the cluster take one from another."""

# In C_LOOKED, as bits: what the cluster's outcome rested on beyond its own machines and needs.
PRESENCE = cast("int", np.int64(1))
"""The outcome rested on which shapes have any machine at all."""
TOTALS = cast("int", np.int64(2))
"""The outcome rested on how many machines each shape has."""

# In COHORT_TIER: how soon a machine could serve.
AT_ONCE = cast("int", np.int64(0))
"""The machine is there, or on its way to Idle."""
TO_BE_CREATED = cast("int", np.int64(1))
"""The machine is a slot, or on its way back to being one."""

# Places of T_SCORE_WEIGHTS.
WEIGHT_PRIORITY, WEIGHT_DRAIN, WEIGHT_INTERRUPT, WEIGHT_RECLAIM = range(4)
WEIGHTS = 4
"""How many weights there are."""

# In A_KIND: what an acquisition does. NONE there says that it was undone.
BOOTSTRAP = cast("int", np.int64(0))
PROVISION = cast("int", np.int64(1))
PREEMPT = cast("int", np.int64(2))
