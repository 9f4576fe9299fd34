"""Whether the requests are all of the demand: said in a ConfigMap, for the operator's roll-up to repeat.

It stands there whether any request lives or not, and whether this program runs or not. It says partial before the first
request of that mode is made, and total only once every live pod has been looked at.
"""

from bigfleet.kube.client import Client, Patch
from bigfleet.kube.objects.names import DEMAND, PARTIAL, POD_CONTROLLER, TOTAL
from bigfleet.kube.objects.resources import CONFIG_MAPS
from bigfleet.podcontroller.keeper import LABELS, Mode


async def mark(client: Client, namespace: str, mode: Mode) -> None:
    """Say which part of the demand this mode makes requests for."""
    demand = TOTAL if mode is Mode.ALL else PARTIAL
    content = {
        "metadata": {"name": POD_CONTROLLER, "namespace": namespace, "labels": dict(LABELS)},
        "data": {DEMAND: demand, "mode": mode.value},
    }
    await client.patch(CONFIG_MAPS, POD_CONTROLLER, content, namespace, content=Patch.APPLY, manager=POD_CONTROLLER)
