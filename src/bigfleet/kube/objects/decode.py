"""From bytes to objects: single ones, pages of lists, and lines of a watch.

msgspec decodes straight into structs. An object that cannot be read is set aside by name, and its neighbours are still
read. Of a `shared` kind, equal parts are decoded once and kept once: a cluster has a quarter of a million
CapacityRequests and a few hundred different specs.
"""

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from bigfleet.kube.objects.resources import Resource
from bigfleet.model.crd import ListMeta, ObjectMeta, OwnerReference, Time

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# Different parts that are remembered; past that, remembering begins anew.
_MOST_PARTS = 16_384
_NOTHING = msgspec.Raw(b"null")
# The required fields of all kinds' specs.
_LEAST_SPEC = {"resources": {}, "priority": 0, "request": "", "signerName": ""}


class Unreadable(NamedTuple):
    """An object that could not be read: its metadata, and the problem."""

    metadata: ObjectMeta
    problem: str


class ObjectPage(NamedTuple, Generic[T]):
    """One page of a list."""

    metadata: ListMeta
    objects: Sequence[T]
    unreadable: Sequence[Unreadable]


class _Name(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Outline(msgspec.Struct, gc=False):
    metadata: _Name


class _RawPage(msgspec.Struct, gc=False):
    metadata: ListMeta
    # Go writes null for an empty list now and then.
    items: list[msgspec.Raw] | None = None


class WatchEvent(msgspec.Struct, gc=False):
    """One line of a watch; what its object is depends on its type."""

    type: str
    object: msgspec.Raw


class _Reading(Protocol[T_co]):
    def __call__(self, raw: bytes | msgspec.Raw, /) -> T_co: ...


class Codec(Generic[T]):
    """Reads the objects of one resource. Raises msgspec's errors for bytes that cannot be read."""

    def __init__(self, resource: Resource[T]) -> None:
        self._resource = resource
        self.one: _Reading[T] = Sharing(resource).read if resource.shared else _plain(resource.type)
        self._page = _plain(_RawPage)
        self._outline = _plain(_Outline)
        self._events = msgspec.json.Decoder(WatchEvent)

    def page(self, body: bytes) -> ObjectPage[T]:
        """One page of a list; objects that cannot be read are set aside."""
        raw = self._page(body)
        objects: list[T] = []
        unreadable: list[Unreadable] = []
        for item in raw.items or ():
            try:
                objects.append(self.one(item))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                unreadable.append(Unreadable(self.metadata(item), str(error)))
        return ObjectPage(raw.metadata, objects, unreadable)

    def events(self, lines: bytes | bytearray | memoryview) -> list[WatchEvent]:
        """The events in a text of whole lines."""
        return self._events.decode_lines(lines)

    def metadata(self, raw: msgspec.Raw) -> ObjectMeta:
        """The names, UID and version of an object that may be unreadable otherwise."""
        found = self._outline(raw).metadata
        return ObjectMeta(
            name=found.name, namespace=found.namespace, uid=found.uid, resource_version=found.resource_version
        )

    def tombstone(self, metadata: ObjectMeta) -> T:
        """An object with metadata only, to report an unreadable object as gone."""
        return msgspec.convert({"metadata": metadata, "spec": _LEAST_SPEC}, self._resource.type, from_attributes=True)


def _plain(kind: type[T]) -> _Reading[T]:
    return msgspec.json.Decoder(kind).decode


class _Metadata(msgspec.Struct, gc=False, rename="camel"):
    """ObjectMeta in which the parts that many objects have in common are left as bytes."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: msgspec.Raw = _NOTHING
    deletion_timestamp: msgspec.Raw = _NOTHING
    labels: msgspec.Raw = _NOTHING
    annotations: msgspec.Raw = _NOTHING
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: msgspec.Raw = _NOTHING


class _Parts(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: msgspec.Raw
    status: msgspec.Raw = _NOTHING


class Sharing(Generic[T]):
    """Reads objects made of metadata, spec and status; parts whose bytes are equal are decoded once and shared.

    This is safe because the structs are frozen. Nobody may change a dict inside one.
    """

    def __init__(self, resource: Resource[T]) -> None:
        kind: Any = resource.type
        self._make = kind
        fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
        self._parts = _plain(_Parts)
        self._spec = _Shared(fields["spec"])
        self._status = _Shared(fields["status"])
        self._mapping = _Shared(dict[str, str] | None, {})
        self._time = _Shared(Time | None)
        self._names = _Shared(tuple[str, ...] | None, ())
        self._words: dict[str, str] = {}

    def read(self, raw: bytes | msgspec.Raw, /) -> T:
        """One object."""
        parts = self._parts(raw)
        found = parts.metadata
        metadata = ObjectMeta(
            name=found.name,
            generate_name=self._word(found.generate_name),
            namespace=self._word(found.namespace),
            uid=found.uid,
            resource_version=found.resource_version,
            generation=found.generation,
            creation_timestamp=self._time.of(found.creation_timestamp),
            deletion_timestamp=self._time.of(found.deletion_timestamp),
            labels=self._mapping.of(found.labels),
            annotations=self._mapping.of(found.annotations),
            owner_references=tuple(map(self._owner, found.owner_references)) if found.owner_references else (),
            finalizers=self._names.of(found.finalizers),
        )
        made: T = self._make(metadata=metadata, spec=self._spec.of(parts.spec), status=self._status.of(parts.status))
        return made

    def _owner(self, found: OwnerReference) -> OwnerReference:
        return OwnerReference(
            api_version=self._word(found.api_version),
            kind=self._word(found.kind),
            name=found.name,
            uid=found.uid,
            controller=found.controller,
            block_owner_deletion=found.block_owner_deletion,
        )

    def _word(self, text: str) -> str:
        if len(self._words) >= _MOST_PARTS:
            self._words.clear()
        return self._words.setdefault(text, text)


class _Shared:
    """The values of one type by their bytes. Servers nearly always write equal values as equal bytes."""

    def __init__(self, kind: Any, nothing: object = None) -> None:
        self._read = msgspec.json.Decoder(kind).decode
        self._nothing = nothing
        self._values: dict[bytes, Any] = {}

    def of(self, raw: msgspec.Raw) -> Any:
        key = bytes(raw)
        values = self._values
        value = values.get(key, self)
        if value is self:
            value = self._read(raw)
            if value is None:
                value = self._nothing
            if len(values) >= _MOST_PARTS:
                values.clear()
            values[key] = value
        return value
