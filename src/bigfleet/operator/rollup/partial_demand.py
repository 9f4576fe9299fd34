"""Whether the requests are all of the cluster's demand: what the pod controller says in a ConfigMap."""

from collections.abc import Callable, Sequence

from bigfleet.kube.objects.kinds import ConfigMap
from bigfleet.kube.objects.names import DEMAND, PARTIAL


class PartialDemand:
    """A sink of a watch on that one ConfigMap. Where there is none, whoever makes the requests makes all of them."""

    def __init__(self, say: Callable[[bool], None]) -> None:
        self._say = say

    def replaced(self, config_maps: Sequence[ConfigMap]) -> None:
        """These are all there are."""
        self._say(any(config_map.data.get(DEMAND) == PARTIAL for config_map in config_maps))

    def put(self, config_map: ConfigMap) -> None:
        """It is new, or another than it was."""
        self.replaced([config_map])

    def removed(self, config_map: ConfigMap) -> None:  # noqa: ARG002 - there is but one
        """It is gone."""
        self._say(False)
