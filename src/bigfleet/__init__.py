"""BigFleet: one decision engine for the machines of many Kubernetes clusters.

The tree is the architecture: each package is one layer of `.importlinter`, and imports go down only.
"""

__version__ = "0.1.0"
