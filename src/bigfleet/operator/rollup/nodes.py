"""The cluster's Nodes as the watch shows them, found by name or by spec.providerID."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from bigfleet.kube.objects.kinds import Node


class Nodes:
    """The sink of a watch on Nodes. `changed` is called with a Node's name when that Node has come, gone or changed."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._nodes: dict[str, Node] = {}
        #: Names of Nodes by spec.providerID. A host has two Nodes while that of an earlier binding is still there.
        self._by_provider_id: dict[str, list[str]] = {}

    def __iter__(self) -> Iterator[Node]:
        return iter(list(self._nodes.values()))

    def __len__(self) -> int:
        return len(self._nodes)

    def names(self) -> Iterable[str]:
        """The names of all Nodes."""
        return self._nodes.keys()

    def replaced(self, nodes: Sequence[Node]) -> None:
        """The watch has listed anew: these are all Nodes."""
        found = {node.metadata.name for node in nodes}
        for name in [name for name in self._nodes if name not in found]:
            self._take_out(name)
        for node in nodes:
            self.put(node)

    def put(self, node: Node) -> None:
        """A Node is new, or has changed."""
        name = node.metadata.name
        self._take_from_host(name)
        self._nodes[name] = node
        if node.spec.provider_id:
            self._by_provider_id.setdefault(node.spec.provider_id, []).append(name)
        self._changed(name)

    def removed(self, node: Node) -> None:
        """A Node is gone."""
        self._take_out(node.metadata.name)

    def get(self, name: str) -> Node | None:
        """The Node of that name."""
        return self._nodes.get(name)

    def by_provider_id(self, provider_id: str) -> Node | None:
        """The Node with that spec.providerID; of several, the one that the watch showed last."""
        names = self._by_provider_id.get(provider_id)
        return None if names is None else self._nodes[names[-1]]

    def _take_out(self, name: str) -> None:
        self._take_from_host(name)
        if self._nodes.pop(name, None) is not None:
            self._changed(name)

    def _take_from_host(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None or not node.spec.provider_id:
            return
        names = self._by_provider_id[node.spec.provider_id]
        names.remove(name)
        if not names:
            del self._by_provider_id[node.spec.provider_id]
