"""The kinds of Kubernetes that BigFleet reads or writes, as structs with only the fields that BigFleet uses.

Fields that are not listed are dropped in decoding, so an object is never written back whole: changes are patches.
apiVersion and kind are not fields here: lists leave both out, and `resources` knows them.
"""

import msgspec

from bigfleet.model.crd import Amount, LabelSelector, ObjectMeta, Taint, Time


# gc=False is safe throughout: these are frozen trees made from JSON, which cannot hold a cycle.
class _Value(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """What all structs here share."""


class ObjectReference(_Value, frozen=True):
    """Some object, as an Event names it."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Condition(_Value, frozen=True):
    """One condition of a Pod, a Node or a CertificateSigningRequest; `status` is True, False or Unknown."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


# Pods


class ResourceRequirements(_Value, frozen=True):
    """What a container, or a whole pod, asks for at least and gets at most."""

    requests: dict[str, Amount] = {}
    limits: dict[str, Amount] = {}


class Container(_Value, frozen=True):
    """One container; among the init containers, one with restartPolicy Always is a sidecar."""

    name: str
    resources: ResourceRequirements | None = None
    restart_policy: str = ""


class NodeSelectorRequirement(_Value, frozen=True):
    """One condition on a node's label or field; operators are In, NotIn, Exists, DoesNotExist, Gt and Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(_Value, frozen=True):
    """Conditions that must all hold."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(_Value, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(_Value, frozen=True):
    """Which nodes a pod may run on."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class PodAffinityTerm(_Value, frozen=True):
    """Pods beside which, or away from which, a pod runs. A missing selector selects no pod, an empty one every pod."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None


class PodAffinity(_Value, frozen=True):
    """Terms that must all hold; of an anti-affinity, none."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(_Value, frozen=True):
    """Where a pod must run; preferences are dropped."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class PodTopologySpreadConstraint(_Value, frozen=True):
    """How evenly the selected pods must be spread over the values of a label."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None


class Toleration(_Value, frozen=True):
    """Taints that a pod tolerates."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SchedulingGate(_Value, frozen=True):
    """What must be lifted before the scheduler looks at the pod."""

    name: str


class PodSpec(_Value, frozen=True):
    """What a pod asks for."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    overhead: dict[str, Amount] = {}
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    topology_spread_constraints: tuple[PodTopologySpreadConstraint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    priority: int | None = None
    priority_class_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    termination_grace_period_seconds: int | None = None


class ContainerStatus(_Value, frozen=True):
    """What a running container was given, which a resize under way makes differ from what it asks for."""

    name: str
    allocated_resources: dict[str, Amount] = {}
    resources: ResourceRequirements | None = None


class PodStatus(_Value, frozen=True):
    """How far a pod is."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(_Value, frozen=True):
    """A pod."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodTemplate(_Value, frozen=True):
    """What the pods of a DaemonSet look like."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class DaemonSetSpec(_Value, frozen=True):
    """Which pods run on every fitting node."""

    template: PodTemplate = PodTemplate()


class DaemonSet(_Value, frozen=True):
    """Pods that run on every fitting node."""

    metadata: ObjectMeta
    spec: DaemonSetSpec = DaemonSetSpec()


# Nodes


class NodeSpec(_Value, frozen=True):
    """What a node is told."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeInfo(_Value, frozen=True):
    """What runs the node."""

    kubelet_version: str = ""


class NodeStatus(_Value, frozen=True):
    """What a node has and how it is."""

    capacity: dict[str, Amount] = {}
    allocatable: dict[str, Amount] = {}
    conditions: tuple[Condition, ...] = ()
    node_info: NodeInfo = NodeInfo()


class Node(_Value, frozen=True):
    """A node."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class LeaseSpec(_Value, frozen=True):
    """Who holds a lease, since when and for how long."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: Time | None = None
    lease_transitions: int | None = None


class Lease(_Value, frozen=True):
    """A node's sign of life, or the leadership of a program."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class CertificateSigningRequestSpec(_Value, frozen=True):
    """The request (PEM) and who shall sign it for what."""

    request: bytes
    signer_name: str


class CertificateSigningRequestStatus(_Value, frozen=True):
    """Whether it was approved, and the certificate (PEM) once it is there."""

    certificate: bytes = b""
    conditions: tuple[Condition, ...] = ()


class CertificateSigningRequest(_Value, frozen=True):
    """A certificate asked of the cluster's authority."""

    metadata: ObjectMeta
    spec: CertificateSigningRequestSpec
    status: CertificateSigningRequestStatus = CertificateSigningRequestStatus()


# The rest


class Namespace(_Value, frozen=True):
    """A namespace."""

    metadata: ObjectMeta


class ConfigMap(_Value, frozen=True):
    """Settings."""

    metadata: ObjectMeta
    data: dict[str, str] = {}


class Secret(_Value, frozen=True):
    """Secret values. Its repr shows the name only."""

    metadata: ObjectMeta
    type: str = ""
    data: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name})"


class Event(_Value, frozen=True):
    """Something that happened to an object, for people to read (events.k8s.io/v1)."""

    metadata: ObjectMeta
    event_time: Time | None = None
    regarding: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    action: str = ""
    note: str = ""
    reporting_controller: str = ""
    reporting_instance: str = ""


class StatusCause(_Value, frozen=True):
    """One of the causes of a refusal."""

    reason: str = ""
    message: str = ""


class StatusDetails(_Value, frozen=True):
    """What a refusal is about and when to come again."""

    retry_after_seconds: int = 0
    causes: tuple[StatusCause, ...] = ()


class Status(_Value, frozen=True):
    """What the API server answers in place of an object."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None
