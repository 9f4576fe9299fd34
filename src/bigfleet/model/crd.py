"""The three Kubernetes kinds of `api/crd` as structs: decoded straight from JSON, or from manifests in YAML.

Fields carry the exact Kubernetes names in JSON and snake case here. Unknown fields are ignored, as every Kubernetes
client must; what is not listed (managedFields) is dropped. Field by field the structs equal the schemas, by test.
"""

import re
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from bigfleet.model import plain_yaml

ApiVersion = Literal["bigfleet.lucy.sh/v1alpha1"]
API_VERSION: ApiVersion = "bigfleet.lucy.sh/v1alpha1"

_MAX_SHOWN = 200

_T = TypeVar("_T")

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Amount = str | Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A quantity as it stands in the object; `model.quantity` gives it its meaning."""
Time = Annotated[datetime, msgspec.Meta(tz=True)]

SelectorOperator = Literal["In", "NotIn", "Exists", "DoesNotExist"]
WhenUnsatisfiable = Literal["DoNotSchedule", "ScheduleAnyway"]
RequestPhase = Literal["Pending", "Acknowledged"]
NodePhase = Literal["Provisioning", "Launched", "Registered", "Ready", "Draining", "Drained", "Failed"]
Availability = Literal["None", "Low", "Medium", "High"]
TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


def _always(value: _T) -> _T:
    """A default that is written out nevertheless: `omit_defaults` leaves out constants, but not what a factory made."""
    field: _T = msgspec.field(default_factory=lambda: value)
    return field


# gc=False is safe throughout: these are frozen trees made from JSON, which cannot hold a cycle.
class _Value(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The options that all structs here share: frozen, camel case in JSON, defaults left out."""


class OwnerReference(_Value, frozen=True, kw_only=True):
    """The object with which this one is garbage-collected."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(_Value, frozen=True, kw_only=True):
    """The part of Kubernetes' metadata that BigFleet reads or writes."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class ListMeta(_Value, frozen=True):
    """Where a list stands: the version to watch from, and the token for its next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class SelectorRequirement(_Value, frozen=True):
    """One condition on one label."""

    key: str
    operator: SelectorOperator
    values: tuple[str, ...] = ()


class LabelSelector(_Value, frozen=True):
    """Pods by their labels."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[SelectorRequirement, ...] = ()


class Taint(_Value, frozen=True):
    """A taint as on a Node."""

    key: str
    effect: TaintEffect
    value: str = ""


class TopologySpreadConstraint(_Value, frozen=True):
    """One label over whose values equal requests are spread."""

    topology_key: str
    max_skew: Positive
    when_unsatisfiable: WhenUnsatisfiable


class CoLocation(_Value, frozen=True):
    """The gang that a request belongs to, and the label of which the gang shares one value."""

    topology_key: str
    label_selector: LabelSelector


class CapacityRequestSpec(_Value, frozen=True, kw_only=True):
    """What one pod needs."""

    resources: dict[str, Amount]
    priority: Int32
    requirements: tuple[SelectorRequirement, ...] = ()
    interruption_penalty: Amount = 0
    reclamation_penalty: Amount = 0
    topology_spread: tuple[TopologySpreadConstraint, ...] = ()
    co_location: CoLocation | None = None
    max_per_node: Positive | None = None


class CapacityRequestStatus(_Value, frozen=True):
    """Whether the fleet has counted the request."""

    phase: RequestPhase = _always("Pending")
    acknowledged_at: Time | None = None


class CapacityRequest(_Value, frozen=True, kw_only=True):
    """The capacity that one pod needs, for as long as it lives."""

    api_version: ApiVersion = _always(API_VERSION)
    kind: Literal["CapacityRequest"] = _always("CapacityRequest")
    metadata: ObjectMeta
    spec: CapacityRequestSpec
    status: CapacityRequestStatus | None = None


class NodeTemplate(_Value, frozen=True):
    """What a node made from available capacity would look like."""

    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()


class AvailableCapacitySpec(_Value, frozen=True, kw_only=True):
    """How much more of one kind of capacity there is, how surely, at what price (dollars an hour) and how soon."""

    requirements: tuple[SelectorRequirement, ...] = ()
    resources: dict[str, Amount] = {}
    available_count: Count | None = None
    availability: Availability | None = None
    cost: str | None = None
    node_template: NodeTemplate | None = None
    supports_atomic_provisioning: bool | None = None
    estimated_provisioning_time: str | None = None


class AvailableCapacityStatus(_Value, frozen=True):
    """Empty: the kind has a status subresource and nothing in it."""


class AvailableCapacity(_Value, frozen=True, kw_only=True):
    """A hint at what the fleet could still give to the cluster."""

    api_version: ApiVersion = _always(API_VERSION)
    kind: Literal["AvailableCapacity"] = _always("AvailableCapacity")
    metadata: ObjectMeta
    spec: AvailableCapacitySpec
    status: AvailableCapacityStatus | None = None


class NodeRef(_Value, frozen=True):
    """A Node by its name."""

    name: str


class UpcomingNodeSpec(_Value, frozen=True, kw_only=True):
    """What the node will offer."""

    resources: dict[str, Amount]
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()


class UpcomingNodeStatus(_Value, frozen=True, kw_only=True):
    """How far the machine is on its way into the cluster or out of it."""

    phase: NodePhase | None = None
    node_ref: NodeRef | None = None
    provider_id: str = msgspec.field(default="", name="providerID")
    last_error: str = ""
    provisioning_start_time: Time | None = None
    estimated_ready_time: Time | None = None


class UpcomingNode(_Value, frozen=True, kw_only=True):
    """A machine that the fleet has bound to the cluster."""

    api_version: ApiVersion = _always(API_VERSION)
    kind: Literal["UpcomingNode"] = _always("UpcomingNode")
    metadata: ObjectMeta
    spec: UpcomingNodeSpec
    status: UpcomingNodeStatus | None = None


class CapacityRequestList(_Value, frozen=True):
    """One page of CapacityRequests, as the API server lists them."""

    metadata: ListMeta
    items: tuple[CapacityRequest, ...]


class AvailableCapacityList(_Value, frozen=True):
    """One page of AvailableCapacities, as the API server lists them."""

    metadata: ListMeta
    items: tuple[AvailableCapacity, ...]


class UpcomingNodeList(_Value, frozen=True):
    """One page of UpcomingNodes, as the API server lists them."""

    metadata: ListMeta
    items: tuple[UpcomingNode, ...]


Manifest = CapacityRequest | AvailableCapacity | UpcomingNode

_KINDS: dict[str, type[CapacityRequest] | type[AvailableCapacity] | type[UpcomingNode]] = {
    "CapacityRequest": CapacityRequest,
    "AvailableCapacity": AvailableCapacity,
    "UpcomingNode": UpcomingNode,
}


class ManifestError(ValueError):
    """A manifest that cannot be read. Names the source, the document (from 1; 0 is the whole text) and the field."""

    def __init__(self, source: str, reason: str, *, document: int = 0, field: str = "") -> None:
        self.source, self.document, self.field, self.reason = source, document, _shown(field), _shown(reason)
        place = f"{source}: document {document}" if document else source
        super().__init__(": ".join(part for part in (place, self.field, self.reason) if part))


def _shown(text: str) -> str:
    """Text that may quote a manifest, fit for one line of a terminal."""
    printable = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    return printable if len(printable) <= _MAX_SHOWN else printable[:_MAX_SHOWN] + "…"


def load_manifests(text: str, source: str) -> dict[int, Manifest]:
    """The objects of a YAML text by the numbers of their documents, from 1; empty documents count and hold none.

    `source` is what errors call the text, such as a file's name. Raises ManifestError.
    """
    try:
        return {
            number: _manifest(document, source, number)
            for number, document in plain_yaml.documents(text)
            if document is not None
        }
    except plain_yaml.PlainYamlError as error:
        raise ManifestError(source, error.problem, document=error.document) from None


def _manifest(document: object, source: str, number: int) -> Manifest:
    if not isinstance(document, dict):
        raise ManifestError(source, "holds no mapping with apiVersion, kind, metadata and spec", document=number)
    kind = document.get("kind")
    struct = _KINDS.get(kind) if isinstance(kind, str) else None
    if struct is None:
        problem = f"{kind!r} is none of {', '.join(_KINDS)}"
        raise ManifestError(source, problem, document=number, field="kind")
    if document.get("apiVersion") != API_VERSION:
        problem = f"{document.get('apiVersion')!r} is not {API_VERSION}"
        raise ManifestError(source, problem, document=number, field="apiVersion")
    try:
        manifest: Manifest = msgspec.convert(document, struct)
    except msgspec.ValidationError as error:
        field, reason = _fault(error, document, struct)
        raise ManifestError(source, reason, document=number, field=field) from None
    if not manifest.metadata.name and not manifest.metadata.generate_name:
        raise ManifestError(source, "give it a name, or generateName", document=number, field="metadata.name")
    return manifest


def _fault(error: msgspec.ValidationError, document: dict[str, Any], struct: type[Manifest]) -> tuple[str, str]:
    """The field and the reason from msgspec's words, which are: reason - at `$.path`."""
    reason, _, path = str(error).partition(" - at `$")
    field = path.rstrip("`").removeprefix(".")
    if field.endswith("[...]"):
        field = f"{field.removesuffix('[...]')}[{_wrong_key(path, document, struct)}]"
    if re.search(r"\bstr`, got `(int|float|bool)`", reason):
        reason += "; put it in quotes"
    if reason.startswith("Invalid enum value"):
        reason += f": write one of {', '.join(_choices(path, struct))}"
    return field, reason


def _choices(path: str, struct: type[Manifest]) -> tuple[str, ...]:
    """The values that the field at msgspec's path may take."""
    here: Any = msgspec.inspect.type_info(struct)
    for step in re.findall(r"\w+", path):
        here = here.item_type if step.isdigit() else {field.encode_name: field.type for field in here.fields}[step]
        if isinstance(here, msgspec.inspect.UnionType):
            here = next(type_ for type_ in here.types if not isinstance(type_, msgspec.inspect.NoneType))
    return tuple(here.values)


def _wrong_key(path: str, document: dict[str, Any], struct: type[Manifest]) -> str:
    """The key at fault in the mapping that msgspec's path ends in.

    msgspec does not name the key, so each one is tried alone.
    """
    mapping: Any = document
    for name, position in re.findall(r"(\w+)|\[(\d+)\]", path):
        mapping = mapping[name or int(position)]
    for key, value in dict(mapping).items():
        mapping.clear()
        mapping[key] = value
        try:
            msgspec.convert(document, struct)
        except msgspec.ValidationError as error:
            if str(error).endswith(path):
                return str(key)
    return "..."
