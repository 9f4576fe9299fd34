"""The ConfigMap that says whether the requests are all of the demand; the operator repeats that in its roll-ups.

The ConfigMap stays when there are no requests and when this program does not run. It says partial before the first
request of that mode is made, and total only once every live pod has been looked at.
"""

from bigfleet.kube.client import Client, Patch
from bigfleet.kube.objects.names import DEMAND, PARTIAL, POD_CONTROLLER, TOTAL
from bigfleet.kube.objects.resources import CONFIG_MAPS
from bigfleet.podcontroller.keeper import LABELS, Mode


async def mark(client: Client, namespace: str, mode: Mode) -> None:
    """Write into the ConfigMap whether this mode makes requests for all of the demand or for a part."""
    demand = TOTAL if mode is Mode.ALL else PARTIAL
    content = {
        "metadata": {"name": POD_CONTROLLER, "namespace": namespace, "labels": dict(LABELS)},
        "data": {DEMAND: demand, "mode": mode.value},
    }
    await client.patch(CONFIG_MAPS, POD_CONTROLLER, content, namespace, content=Patch.APPLY, manager=POD_CONTROLLER)
