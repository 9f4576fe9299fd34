"""The errors with which a shard reports a machine that left a cluster without a drain: Failed, with one of these texts.

Our operator knows by them that nothing more will be said of the machine. To another operator they are ordinary errors.
"""

NO_LONGER_MEANT = "the machine is no longer meant for this cluster"
"""The machine goes elsewhere."""

GONE = "its provider no longer has the machine"
"""The machine no longer exists, so its Node can be deleted."""
