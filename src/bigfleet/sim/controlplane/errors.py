"""What goes wrong with a control plane, in words for the person who wanted one."""


class ControlPlaneError(Exception):
    """A control plane cannot be had, did not start, or lost one of its processes."""


class BinariesError(ControlPlaneError):
    """The binaries of a control plane are not there and cannot be built; says what to do."""
