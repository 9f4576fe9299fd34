"""The compiled protos against contract.md: the tables below were written from its text, not from the protos."""

from collections.abc import Iterator, Mapping

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor, MethodDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from bigfleet.wire.v1alpha1 import capacity_pb2, coordinator_pb2, provider_pb2, shard_pb2, shardread_pb2

PACKAGE = "bigfleet.v1alpha1"
FIRST_OF_OURS = 100

# File, then message, then its fields as "number name type", in the order and the manner of contract.md.
MESSAGES: dict[str, dict[str, str]] = {
    "capacity": {
        "ClusterCapacityNeeds": "1 cluster_id string · 2 timestamp_unix_nanos int64 · 3 needs repeated CapacityNeed",
        "CapacityNeed": "1 requirements repeated NodeSelectorRequirement · 2 aggregate_resources map<string,string>"
        " · 3 priority int32 · 5 spread repeated TopologySpread · 6 interruption_penalty_bucket PenaltyBucket"
        " · 7 reclamation_penalty_bucket PenaltyBucket · 8 min_unit map<string,string> · 9 group string",
        "NodeSelectorRequirement": "1 key string · 2 operator NodeSelectorRequirement.Operator"
        " · 3 values repeated string",
        "TopologySpread": "1 topology_key string · 2 max_skew int32"
        " · 3 when_unsatisfiable TopologySpread.WhenUnsatisfiable",
    },
    "provider": {
        "HostRef": "1 provider string · 2 ref string",
        "Resources": "1 resources map<string,string>",
        "Machine": "1 id string · 2 state MachineState · 3 host HostRef · 4 instance_type string · 5 zone string"
        " · 6 capacity_type CapacityType · 7 price_per_hour double · 8 interruption_probability double"
        " · 9 resources Resources · 10 labels map<string,string> · 12 last_error string · 13 allocatable Resources"
        " · 14 cluster string · 15 shard_metadata map<string,string>",
        "MachineRef": "1 id string",
        "MachineList": "1 machines repeated Machine · 2 revision bytes",
        "ListFilter": "1 states repeated MachineState · 4 max_results int32 · 5 since_revision bytes",
        "CreateRequest": "1 machine_id string · 3 shard_id string · 4 shard_epoch int64 · 5 sequence_number int64",
        "ConfigureRequest": "1 machine_id string · 2 cluster_id string · 3 bootstrap_blob bytes · 4 shard_id string"
        " · 5 shard_epoch int64 · 6 sequence_number int64 · 7 shard_metadata map<string,string>",
        "DrainRequest": "1 machine_id string · 2 grace_period_seconds int64 · 3 shard_id string · 4 shard_epoch int64"
        " · 5 sequence_number int64",
        "DeleteRequest": "1 machine_id string · 2 shard_id string · 3 shard_epoch int64 · 4 sequence_number int64",
        "TransitionAck": "1 operation_id string · 2 machine Machine",
    },
    "shard": {
        "OperatorMessage": "1 hello Hello · 2 rollup ClusterCapacityNeeds · 3 bootstrap_response BootstrapBlobResponse"
        " · 4 reclaim_ack ReclaimAck",
        "ShardMessage": "1 ack Acknowledgement · 2 bootstrap_request BootstrapRequest"
        " · 3 reclaim_instruction ReclaimInstruction · 4 node_state_update NodeStateUpdate"
        " · 5 available_capacity AvailableCapacityUpdate",
        "Hello": "1 cluster_id string · 3 protocol_version string",
        "Acknowledgement": "1 echo string · 2 coordinator_term int64 · 3 shard_epoch int64",
        "BootstrapRequest": "1 request_id string · 2 requirements repeated NodeSelectorRequirement"
        " · 3 cluster_id string",
        "BootstrapBlobResponse": "1 request_id string · 2 user_data bytes · 3 ttl_seconds int64 · 4 error string",
        "ReclaimInstruction": "1 instruction_id string · 2 nodes repeated string · 3 grace_period_seconds int64"
        " · 4 preemptor_priority int32",
        "ReclaimAck": "1 instruction_id string · 2 nodes_started int32",
        "NodeStateUpdate": "1 supersedes_key string · 2 machine_id string · 3 cluster_id string · 4 state MachineState"
        " · 5 node_name string · 6 provider_id string · 8 last_error string · 9 labels map<string,string>"
        " · 10 resources Resources · 11 taints repeated Taint",
        "Taint": "1 key string · 2 value string · 3 effect string",
        "AvailableCapacityUpdate": "1 supersedes_key string · 2 requirements repeated NodeSelectorRequirement"
        " · 3 resources Resources · 4 available_count int32 · 5 confidence AvailableCapacityUpdate.Confidence"
        " · 6 cost_per_hour double",
    },
    "shardread": {
        "InspectNeedsRequest": "1 cluster_id string · 2 limit int32",
        "InspectNeedsResponse": "1 header InspectNeedsHeader · 2 need NeedView",
        "InspectNeedsHeader": "1 cycle int64 · 2 computed_at_unix_nanos int64 · 3 total_needs int32",
        "NeedView": "1 need CapacityNeed · 2 cluster_id string · 3 arrival_unix_nanos int64"
        " · 4 profile_fingerprint string · 5 satisfied bool · 6 residual_deficit Resources"
        " · 7 claimed_machine_count int32 · 8 bootstrap_count int32 · 9 provision_count int32 · 10 same_domain string"
        " · 11 same_satisfiable bool · 12 acquisition_parked bool · 13 parked_age_cycles int32"
        " · 14 age_cycles_unmet int32 · 15 unmet_reason UnmetReason",
    },
    "coordinator": {
        "AssignDomainRequest": "1 topology_key string · 2 topology_value string · 3 shard_id string",
        "AssignDomainResponse": "",
        "UnassignDomainRequest": "1 topology_key string · 2 topology_value string",
        "UnassignDomainResponse": "",
        "RemoveShardRequest": "1 shard_id string",
        "RemoveShardResponse": "",
        "ListShardsRequest": "",
        "ListShardsResponse": "1 shards repeated ShardRegistryEntry",
        "ShardRegistryEntry": "1 shard_id string · 2 address string · 3 registered_at_unix_ns int64"
        " · 4 last_heartbeat_unix_ns int64",
        "ListDomainAssignmentsRequest": "",
        "ListDomainAssignmentsResponse": "1 assignments repeated DomainAssignment",
        "DomainAssignment": "1 topology_key string · 2 topology_value string · 3 shard_id string",
        "ListQuotasRequest": "",
        "ListQuotasResponse": "1 allocations repeated QuotaAllocation",
        "QuotaAllocation": "1 provider string · 2 region string · 3 per_shard map<string,int32>",
        "JoinRaftClusterRequest": "1 node_id string · 2 raft_address string",
        "JoinRaftClusterResponse": "",
        "SnapshotSaveRequest": "",
        "SnapshotSaveChunk": "1 meta_json bytes · 2 data bytes",
        "ShardReport": "1 shard_id string · 2 cycle int64 · 3 timestamp_unix_nanos int64 · 4 shard_epoch int64"
        " · 5 summary ShardSummary · 6 shortfalls repeated Shortfall · 7 instruction_acks repeated InstructAck"
        " · 8 shard_address string",
        "ShardSummary": "1 total_machines int32 · 2 free_machines int32 · 3 per_instance_type_counts map<string,int32>"
        " · 4 per_zone_counts map<string,int32>",
        "Shortfall": "1 requirements repeated NodeSelectorRequirement · 2 deficit Resources · 3 priority int32"
        " · 5 age_cycles int32 · 6 interruption_penalty_bucket PenaltyBucket",
        "ReportAck": "1 coordinator_term int64 · 2 acknowledged bool · 3 instructions repeated CoordinatorInstruction",
        "CoordinatorInstruction": "1 coordinator_term int64 · 2 sequence_number int64 · 3 instruction_id string"
        " · 4 assign_domain AssignDomain · 5 unassign_domain UnassignDomain"
        " · 6 reassign_speculative ReassignSpeculative · 7 cross_shard_drain CrossShardDrain"
        " · 8 transfer_ownership TransferOwnership",
        "AssignDomain": "1 topology_key string · 2 topology_value string",
        "UnassignDomain": "1 topology_key string · 2 topology_value string",
        "ReassignSpeculative": "1 machine_ids repeated string",
        "CrossShardDrain": "1 machine_ids repeated string · 2 preemptor_priority int32",
        "TransferOwnership": "1 machine_ids repeated string · 2 from_shard_id string · 3 to_shard_id string",
        "InstructAck": "1 instruction_id string · 2 outcome InstructAck.Outcome · 3 reason string",
    },
}

RESERVED: dict[str, set[int]] = {
    "CapacityNeed": {4},
    "Machine": {11},
    "ListFilter": {2, 3},
    "CreateRequest": {2},
    "Hello": {2},
    "NodeStateUpdate": {7},
    "AvailableCapacityUpdate": {7, 8, 9},
    "ShardSummary": {5, 6},
    "Shortfall": {4},
}

# The oneof of a message and the contract's fields in it. No other field of the contract stands in a oneof.
ONEOFS: dict[str, tuple[str, set[int]]] = {
    "OperatorMessage": ("payload", {1, 2, 3, 4}),
    "ShardMessage": ("payload", {1, 2, 3, 4, 5}),
    "InspectNeedsResponse": ("frame", {1, 2}),
    "CoordinatorInstruction": ("payload", {4, 5, 6, 7, 8}),
    "SnapshotSaveChunk": ("payload", {1, 2}),
}

# Prefix of the values, then the values by number from 0 up.
ENUMS: dict[str, tuple[str, str]] = {
    "NodeSelectorRequirement.Operator": ("OPERATOR", "UNSPECIFIED IN NOT_IN EXISTS DOES_NOT_EXIST SAME"),
    "TopologySpread.WhenUnsatisfiable": ("WHEN_UNSATISFIABLE", "UNSPECIFIED DO_NOT_SCHEDULE SCHEDULE_ANYWAY"),
    "PenaltyBucket": (
        "PENALTY_BUCKET",
        """UNSPECIFIED ZERO HALF_DOLLAR 1 2 4 8 16 32 64 128 256 512 1024 2048 4096 8192 16384 32768 65536 131072 262144
        524288 1048576 2097152 4194304 8388608 PINNED""",
    ),
    "MachineState": (
        "MACHINE_STATE",
        "UNSPECIFIED SPECULATIVE CREATING IDLE CONFIGURING CONFIGURED DRAINING DELETING FAILED",
    ),
    "CapacityType": ("CAPACITY_TYPE", "UNSPECIFIED BARE_METAL RESERVED ON_DEMAND SPOT"),
    "AvailableCapacityUpdate.Confidence": ("CONFIDENCE", "UNSPECIFIED NONE LOW MEDIUM HIGH"),
    "UnmetReason": (
        "UNMET_REASON",
        "UNSPECIFIED PRIORITY_STARVED NO_MATCHING_SUPPLY TOPOLOGY_UNSATISFIABLE PREEMPTION_EXHAUSTED",
    ),
    "InstructAck.Outcome": ("OUTCOME", "UNSPECIFIED ACCEPTED REJECTED_STALE REJECTED_INVALID FAILED"),
}

RPCS: dict[str, dict[str, str]] = {
    "CapacityProvider": {
        "Create": "CreateRequest → TransitionAck",
        "Configure": "ConfigureRequest → TransitionAck",
        "Drain": "DrainRequest → TransitionAck",
        "Delete": "DeleteRequest → TransitionAck",
        "Get": "MachineRef → Machine",
        "List": "ListFilter → MachineList",
    },
    "Shard": {"Session": "stream OperatorMessage → stream ShardMessage"},
    "ShardRead": {"InspectNeeds": "InspectNeedsRequest → stream InspectNeedsResponse"},
    "Coordinator": {
        "ReportShard": "ShardReport → ReportAck",
        "AssignDomain": "AssignDomainRequest → AssignDomainResponse",
        "UnassignDomain": "UnassignDomainRequest → UnassignDomainResponse",
        "RemoveShard": "RemoveShardRequest → RemoveShardResponse",
        "ListShards": "ListShardsRequest → ListShardsResponse",
        "ListDomainAssignments": "ListDomainAssignmentsRequest → ListDomainAssignmentsResponse",
        "ListQuotas": "ListQuotasRequest → ListQuotasResponse",
        "JoinRaftCluster": "JoinRaftClusterRequest → JoinRaftClusterResponse",
        "SnapshotSave": "SnapshotSaveRequest → stream SnapshotSaveChunk",
    },
}

# What contract.md says is ours on the contract's own messages; the numbers are pinned by contract.binpb.
OURS: dict[str, str] = {
    "CapacityNeed": "max_per_machine int32",
    "ClusterCapacityNeeds": "daemons repeated DaemonDemand · empty_nodes repeated string · partial_demand bool"
    " · unrequested_nodes repeated UnrequestedNode · need_owners repeated NeedOwners",
    "InspectNeedsHeader": "cycle_interval_millis int64",
    "NeedView": "cause NeedCause · cause_text string · cause_since_unix_nanos int64 · owners repeated string",
    "Hello": "features repeated string",
    "OperatorMessage": "node_ready NodeReadyReport · node_drained NodeDrainedReport · cordoned_nodes CordonedNodes",
    "ShardMessage": "reclaim_withdrawn ReclaimWithdrawn · bootstrap_withdrawn BootstrapWithdrawn",
    "Acknowledgement": "rejection_reason string · short_needs repeated NeedKey",
    "BootstrapRequest": "machine_id string · node_name string",
    "BootstrapBlobResponse": "about_machine bool",
    "ReclaimInstruction": "kind ReclaimInstruction.Kind",
    "ListFilter": "label_selector repeated NodeSelectorRequirement",
    "AvailableCapacityUpdate": "eta_seconds int64 · atomic bool",
    "ShardReport": "clusters repeated string · owned_domains repeated TopologyDomain"
    " · unowned_domains repeated TopologyDomain · incidents repeated string · slice_version SliceVersion",
    "ReportAck": "providers repeated ProviderEntry · domains repeated TopologyDomain · quota_slices repeated QuotaSlice"
    " · last_known_epoch int64 · clusters_elsewhere repeated ClusterBinding · slice_revision int64",
    "ReassignSpeculative": "selector MachineSelector",
    "CrossShardDrain": "selector MachineSelector",
    "TransferOwnership": "selector MachineSelector",
    "InstructAck": "machine_ids repeated string",
    "Shortfall": "topology_constrained bool",
}
OUR_RPCS = {"SetQuota", "UpsertProvider", "ListProviders", "ListClusters", "ListShardReports", "SnapshotRestore"}

FILES: dict[str, FileDescriptor] = {
    "capacity": capacity_pb2.DESCRIPTOR,
    "provider": provider_pb2.DESCRIPTOR,
    "shard": shard_pb2.DESCRIPTOR,
    "shardread": shardread_pb2.DESCRIPTOR,
    "coordinator": coordinator_pb2.DESCRIPTOR,
}
CONTRACT_MESSAGES = [(file, name) for file, messages in MESSAGES.items() for name in messages]
SCALARS = {
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_UINT32: "uint32",
}


def local_name(full_name: str) -> str:
    return full_name.removeprefix(f"{PACKAGE}.")


def type_of(field: FieldDescriptor) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return f"map<{type_of(key)},{type_of(value)}>"
    if field.message_type is not None:
        base = local_name(field.message_type.full_name)
    elif field.enum_type is not None:
        base = local_name(field.enum_type.full_name)
    else:
        base = SCALARS[field.type]
    return f"repeated {base}" if field.is_repeated else base


def parsed(row: str) -> list[str]:
    return row.split(" · ") if row else []


def messages_of(file: str) -> Mapping[str, Descriptor]:
    return FILES[file].message_types_by_name


def declaration(message: Descriptor) -> DescriptorProto:
    proto = DescriptorProto()
    message.CopyToProto(proto)
    return proto


def enums() -> Iterator[EnumDescriptor]:
    for file in FILES.values():
        yield from file.enum_types_by_name.values()
        for message in file.message_types_by_name.values():
            yield from message.enum_types


def signature(rpc: MethodDescriptor) -> str:
    request = f"{'stream ' if rpc.client_streaming else ''}{local_name(rpc.input_type.full_name)}"
    response = f"{'stream ' if rpc.server_streaming else ''}{local_name(rpc.output_type.full_name)}"
    return f"{request} → {response}"


@pytest.mark.parametrize("file", FILES)
def test_a_file_has_the_contract_s_name_package_and_syntax(file: str) -> None:
    proto = FileDescriptorProto.FromString(FILES[file].serialized_pb)
    assert (proto.name, proto.package, proto.syntax) == (f"bigfleet/v1alpha1/{file}.proto", PACKAGE, "proto3")


@pytest.mark.parametrize(("file", "name"), CONTRACT_MESSAGES)
def test_a_message_has_exactly_the_contract_s_fields_below_100(file: str, name: str) -> None:
    fields = [
        f"{field.number} {field.name} {type_of(field)}" for field in messages_of(file)[name].fields_by_number.values()
    ]
    assert sorted(row for row in fields if int(row.split()[0]) < FIRST_OF_OURS) == sorted(parsed(MESSAGES[file][name]))


@pytest.mark.parametrize(("file", "name"), CONTRACT_MESSAGES)
def test_a_message_has_exactly_our_own_fields_from_100_up(file: str, name: str) -> None:
    beyond = [field for field in messages_of(file)[name].fields if field.number >= FIRST_OF_OURS]
    assert sorted(f"{field.name} {type_of(field)}" for field in beyond) == sorted(parsed(OURS.get(name, "")))


@pytest.mark.parametrize(("file", "name"), CONTRACT_MESSAGES)
def test_a_message_reserves_exactly_the_contract_s_numbers(file: str, name: str) -> None:
    ranges = declaration(messages_of(file)[name]).reserved_range
    assert {number for span in ranges for number in range(span.start, span.end)} == RESERVED.get(name, set())


@pytest.mark.parametrize(("file", "name"), CONTRACT_MESSAGES)
def test_a_field_stands_in_a_oneof_where_the_contract_says_so_and_nowhere_else(file: str, name: str) -> None:
    message = messages_of(file)[name]
    optional = {field.name for field in declaration(message).field if field.proto3_optional}
    in_oneof = {
        field.number: field.containing_oneof.name
        for field in message.fields
        if field.containing_oneof is not None and field.name not in optional
    }
    oneof, numbers = ONEOFS.get(name, ("", set()))
    # A frame of ours is one more choice beside the contract's, so it has to stand in the same oneof.
    frames_of_ours = {field.number for field in message.fields if field.number >= FIRST_OF_OURS} if oneof else set()
    assert in_oneof == dict.fromkeys(numbers | frames_of_ours, oneof)


@pytest.mark.parametrize(("file", "name"), CONTRACT_MESSAGES)
def test_no_field_of_the_contract_tracks_presence_by_the_optional_keyword(file: str, name: str) -> None:
    fields = declaration(messages_of(file)[name]).field
    assert [field.name for field in fields if field.proto3_optional and field.number < FIRST_OF_OURS] == []


@pytest.mark.parametrize("name", ENUMS)
def test_an_enum_has_exactly_the_contract_s_values(name: str) -> None:
    prefix, values = ENUMS[name]
    (enum,) = [enum for enum in enums() if local_name(enum.full_name) == name]
    assert {value.name: value.number for value in enum.values} == {
        f"{prefix}_{value}": number for number, value in enumerate(values.split())
    }


@pytest.mark.parametrize("service", RPCS)
def test_a_service_has_exactly_the_contract_s_rpcs_and_the_named_ones_of_ours(service: str) -> None:
    (found,) = [file.services_by_name[service] for file in FILES.values() if service in file.services_by_name]
    signatures = {rpc.name: signature(rpc) for rpc in found.methods}
    ours = OUR_RPCS if service == "Coordinator" else set()
    assert signatures.keys() - RPCS[service].keys() == ours
    assert {name: text for name, text in signatures.items() if name not in ours} == RPCS[service]


def test_a_service_stands_in_its_own_file() -> None:
    assert {file: list(descriptor.services_by_name) for file, descriptor in FILES.items()} == {
        "capacity": [],
        "provider": ["CapacityProvider"],
        "shard": ["Shard"],
        "shardread": ["ShardRead"],
        "coordinator": ["Coordinator"],
    }


def test_a_snapshot_is_restored_from_the_very_chunks_that_were_saved() -> None:
    methods = coordinator_pb2.DESCRIPTOR.services_by_name["Coordinator"].methods_by_name
    assert signature(methods["SnapshotRestore"]) == "stream SnapshotSaveChunk → SnapshotRestoreResponse"
