"""The last words of a shard on a machine that left a cluster without a drain: Failed, with one of these errors.

To an operator of somebody else's they are errors like any other. Ours knows by them that nothing more will be said.
"""

NO_LONGER_MEANT = "the machine is no longer meant for this cluster"
GONE = "its provider no longer has the machine"
