"""What this room asks of the rest of the operator: the Nodes and pods that watches show, and who deletes Nodes."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from bigfleet.kube.objects.kinds import Node, Pod


class NodesSeen(Protocol):
    """The cluster's Nodes as a watch shows them."""

    def get(self, name: str) -> Node | None:
        """The Node of that name."""
        ...

    def by_provider_id(self, provider_id: str) -> Node | None:
        """The Node with that spec.providerID, which is not empty."""
        ...

    def __iter__(self) -> Iterator[Node]:
        """All Nodes."""
        ...


class PodsOnNodes(Protocol):
    """The cluster's pods as a watch shows them."""

    def on(self, node_name: str) -> Sequence[Pod]:
        """The pods that are bound to the node."""
        ...


class Leftovers(Protocol):
    """What deletes Nodes whose machines no shard names."""

    def left(self, node_name: str, provider_id: str) -> None:
        """Have the Node deleted once its kubelet is surely gone."""
        ...

    def is_alive(self, node_name: str) -> bool:
        """Whether the Node's kubelet has been seen alive for long enough to believe that it stays."""
        ...

    def let_be(self, node_name: str) -> None:
        """Do not delete the Node after all."""
        ...
