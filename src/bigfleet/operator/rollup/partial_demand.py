"""Whether the requests are all of the cluster's demand: the pod controller says so in a ConfigMap."""

from collections.abc import Callable, Sequence

from bigfleet.kube.objects.kinds import ConfigMap
from bigfleet.kube.objects.names import DEMAND, PARTIAL


class PartialDemand:
    """The sink of a watch on the pod controller's ConfigMap. Without it, requests are all of the demand."""

    def __init__(self, say: Callable[[bool], None]) -> None:
        self._say = say

    def replaced(self, config_maps: Sequence[ConfigMap]) -> None:
        """The watch has listed anew: the ConfigMap, or nothing where there is none."""
        self._say(any(config_map.data.get(DEMAND) == PARTIAL for config_map in config_maps))

    def put(self, config_map: ConfigMap) -> None:
        """The ConfigMap is new, or has changed."""
        self.replaced([config_map])

    def removed(self, config_map: ConfigMap) -> None:  # noqa: ARG002 - the watch is on one ConfigMap alone
        """The ConfigMap is gone."""
        self._say(False)
