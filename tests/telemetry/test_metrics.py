"""Metrics against the contract: every name with its type and labels, read from the text that Prometheus reads."""

import re
from itertools import pairwise
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.parser import text_string_to_metric_families as parse_text

from bigfleet.telemetry.metric_types import Family, LabelValueError, MetricTable
from bigfleet.telemetry.metrics import (
    CoordinatorMetrics,
    OperatorMetrics,
    PodControllerMetrics,
    ShardMetrics,
    expose,
)

PROGRAMS: list[type[MetricTable]] = [ShardMetrics, CoordinatorMetrics, OperatorMetrics, PodControllerMetrics]

KINDS = "Bootstrap Provision Reclaim Preempt Delete"
BUCKETS = (
    "0 0.5 1 2 4 8 16 32 64 128 256 512 1024 2048 4096 8192 16384 32768 65536 131072 262144 524288 1048576 2097152 "
    "4194304 8388608 pinned"
)
ANY = "*"

# name: (type, {label: the values it takes})
CONTRACT: dict[str, tuple[str, dict[str, str]]] = {
    "bigfleet_shard_cycle_duration_seconds": ("histogram", {}),
    "bigfleet_shard_cycle_phase_duration_seconds": (
        "histogram",
        {"phase": "reconcile phase1 phase2 phase3 execute"},
    ),
    "bigfleet_shard_actions_total": ("counter", {"kind": KINDS}),
    "bigfleet_shard_action_execute_outcomes_total": ("counter", {"kind": KINDS, "outcome": ANY}),
    "bigfleet_shard_actions_deferred_total": ("counter", {}),
    "bigfleet_shard_actions_dropped_total": ("counter", {}),
    "bigfleet_shard_actions_deduped_total": ("counter", {}),
    "bigfleet_shard_action_queue_depth": ("gauge", {}),
    "bigfleet_shard_execute_inflight": ("gauge", {}),
    "bigfleet_shard_inventory_machines": (
        "gauge",
        {
            "state": "Speculative Creating Idle Configuring Configured Draining Deleting Failed",
            "capacity_type": "Unspecified BareMetal Reserved OnDemand Spot",
            "interruption_penalty_bucket": BUCKETS,
        },
    ),
    "bigfleet_shard_demand_machines": ("gauge", {"interruption_penalty_bucket": BUCKETS}),
    "bigfleet_shard_shortfalls": ("gauge", {}),
    "bigfleet_shard_shortfalls_by_priority": ("gauge", {"priority_class": "batch service critical other"}),
    "bigfleet_shard_shortfalls_aged": ("gauge", {"bucket": "1-9 10-59 60-299 300+"}),
    "bigfleet_shard_provisioning_latency_seconds": ("histogram", {}),
    "bigfleet_shard_configure_phase_seconds": ("histogram", {}),
    "bigfleet_shard_request_bootstrap_seconds": ("histogram", {}),
    "bigfleet_shard_drain_phase_seconds": ("histogram", {}),
    "bigfleet_shard_reclaims_capped_total": ("counter", {}),
    "bigfleet_shard_rollup_quarantined": ("gauge", {"cluster": ANY}),
    "bigfleet_shard_actions_suppressed_total": ("counter", {"kind": KINDS}),
    "bigfleet_shard_actuation_paused": ("gauge", {}),
    "bigfleet_shard_actions_dryrun_total": ("counter", {"kind": KINDS}),
    "bigfleet_shard_idle_releases_total": ("counter", {}),
    "bigfleet_shard_machines_rejected_total": (
        "counter",
        {"reason": "price interruption_probability structural"},
    ),
    "bigfleet_shard_rollups_rejected_total": ("counter", {"cluster": ANY}),
    "bigfleet_shard_active_sessions": ("gauge", {}),
    "bigfleet_shard_session_lifecycle_total": ("counter", {"event": "installed removed replaced"}),
    "bigfleet_shard_session_identity_rejected_total": ("counter", {}),
    "bigfleet_coordinator_raft_term": ("gauge", {}),
    "bigfleet_coordinator_apply_total": ("counter", {"outcome": "success error fsm_error"}),
    "bigfleet_coordinator_pending_instructions": ("gauge", {"shard": ANY}),
    "bigfleet_operator_rollup_duration_seconds": ("histogram", {}),
    "bigfleet_operator_rollup_phase_duration_seconds": ("histogram", {"phase": "list build enqueue"}),
    "bigfleet_operator_acknowledge_duration_seconds": ("histogram", {}),
    "bigfleet_operator_acknowledged_total": ("counter", {"phase": ANY}),
    "bigfleet_operator_session_reconnects_total": ("counter", {}),
    "bigfleet_operator_outbox_dropped_total": ("counter", {}),
    "bigfleet_operator_node_state_update_duration_seconds": ("histogram", {"phase": ANY}),
    "bigfleet_operator_upcoming_node_writes_total": ("counter", {"op": ANY, "outcome": ANY}),
    "bigfleet_unschedulable_pod_controller_reconciles_total": ("counter", {"outcome": ANY}),
}

OURS: dict[str, tuple[str, dict[str, str]]] = {
    "bigfleet_shard_provider_rpc_duration_seconds": (
        "histogram",
        {"provider": ANY, "method": "Create Configure Drain Delete Get List"},
    ),
    "bigfleet_shard_provider_rpc_errors_total": (
        "counter",
        {"provider": ANY, "method": "Create Configure Drain Delete Get List", "code": ANY},
    ),
    "bigfleet_shard_clusters_silent": ("gauge", {}),
    "bigfleet_shard_engine_compiled": ("gauge", {}),
    "bigfleet_shard_shortfalls_by_cluster": (
        "gauge",
        {
            "cluster": ANY,
            "reason": "operator_away fall_doubted bootstrap_failed no_match too_large too_few domain_too_small skew"
            " paused file_unwritable provider_unreachable out_of_stock machines_failed machines_on_their_way"
            " preemption_exhausted outranked not_looked_for",
        },
    ),
    "bigfleet_shard_provider_reachable": ("gauge", {"provider": ANY}),
    "bigfleet_shard_local_file_writable": ("gauge", {}),
    "bigfleet_shard_machines_vanished_total": ("counter", {"provider": ANY}),
    "bigfleet_coordinator_leader": ("gauge", {}),
}


def table(metrics: MetricTable) -> dict[str, Family[Any] | Counter | Gauge | Histogram]:
    return dict(vars(metrics))


def first(values: str) -> str:
    return values.split(maxsplit=1)[0]


@pytest.fixture
def exposed() -> str:
    """Every program on one registry, with one series of every family, as text."""
    registry = CollectorRegistry()
    expected = CONTRACT | OURS
    for program in PROGRAMS:
        declared = {row.name: attribute for attribute, row in vars(program).items() if hasattr(row, "make")}
        made = table(program(registry))
        for name, attribute in declared.items():
            family = made[attribute]
            if isinstance(family, Family):
                family.of(*(first(values) for values in expected[name][1].values()))
    return expose(registry, "")[0].decode()


def test_every_name_and_type_is_the_contracts_or_listed_as_ours_and_no_other_is_exposed(exposed: str) -> None:
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", exposed, re.MULTILINE))
    assert types == {name: kind for name, (kind, _) in (CONTRACT | OURS).items()}


def test_every_series_belongs_to_a_listed_name_with_exactly_its_labels(exposed: str) -> None:
    seen: dict[str, set[frozenset[str]]] = {}
    for family in parse_text(exposed):
        for sample in family.samples:
            name = re.sub(r"_(bucket|count|sum)$", "", sample.name) if family.type == "histogram" else sample.name
            seen.setdefault(name, set()).add(frozenset(sample.labels) - {"le"})
    assert seen == {name: {frozenset(labels)} for name, (_, labels) in (CONTRACT | OURS).items()}


def test_openmetrics_text_has_the_same_series_and_its_end_mark() -> None:
    registry = CollectorRegistry()
    for program in PROGRAMS:
        program(registry)
    body, content_type = expose(registry, "application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")
    plain, _ = expose(registry, "")
    assert {line.split("{")[0].split(" ")[0] for line in body.decode().splitlines() if line[0] != "#"} == {
        line.split("{")[0].split(" ")[0] for line in plain.decode().splitlines() if line[0] != "#"
    }


@pytest.mark.parametrize(
    "accept", ["", "*/*", "text/html", "text/plain;version=x", "text/plain; version=1.0.0\r\n ", "é"]
)
def test_any_other_accept_header_gets_plain_text(accept: str) -> None:
    body, content_type = expose(CollectorRegistry(), accept)
    assert (body, content_type) == (b"", "text/plain; version=0.0.4; charset=utf-8")


@pytest.mark.parametrize("name", CONTRACT | OURS)
def test_each_label_takes_the_listed_values_and_no_other(name: str) -> None:
    labels = (CONTRACT | OURS)[name][1]
    metrics, attribute = next(
        (program, attribute)
        for program in PROGRAMS
        for attribute, row in vars(program).items()
        if getattr(row, "name", None) == name
    )
    family = table(metrics(CollectorRegistry()))[attribute]
    if not labels:
        assert not isinstance(family, Family)
        return
    assert isinstance(family, Family)
    usual = [first(values) for values in labels.values()]
    for place, (label, values) in enumerate(labels.items()):
        for value in values.split():
            family.of(*usual[:place], value, *usual[place + 1 :])
        if values != ANY:
            with pytest.raises(LabelValueError, match=f"label {label} of .* not 'surprise'"):
                family.of(*usual[:place], "surprise", *usual[place + 1 :])


def bounds(exposed: str, name: str) -> list[float]:
    found = re.findall(rf'^{name}_bucket{{.*le="([^"]+)".*}} ', exposed, re.MULTILINE)
    return [float(bound) for bound in found if bound != "+Inf"]


@pytest.mark.parametrize("name", [name for name in CONTRACT if re.search("shard_(provisioning|configure|drain)", name)])
def test_provisioning_configure_and_drain_are_told_apart_past_30_minutes(exposed: str, name: str) -> None:
    assert [bound for bound in bounds(exposed, name) if bound > 1800]
    assert 1800 in bounds(exposed, name)


@pytest.mark.parametrize("name", [name for name in CONTRACT if "shard_cycle" in name])
def test_cycles_are_told_apart_from_1_ms_to_10_s(exposed: str, name: str) -> None:
    cycle = bounds(exposed, name)
    assert (min(cycle), max(cycle)) == (0.001, 10)
    assert all(upper / lower <= 2.5 for lower, upper in pairwise(cycle))


def test_a_counter_with_listed_labels_is_at_zero_before_its_first_event() -> None:
    registry = CollectorRegistry()
    ShardMetrics(registry)
    for kind in KINDS.split():
        assert registry.get_sample_value("bigfleet_shard_actions_total", {"kind": kind}) == 0


def test_a_series_is_looked_up_once_and_then_kept() -> None:
    metrics = ShardMetrics(CollectorRegistry())
    assert metrics.actions.of("Delete") is metrics.actions.of("Delete")
    assert metrics.rollups_rejected.of("c1") is metrics.rollups_rejected.of("c1")


def test_a_forgotten_cluster_is_no_longer_exposed_and_starts_anew() -> None:
    registry = CollectorRegistry()
    metrics = ShardMetrics(registry)
    for _ in range(2):
        metrics.rollup_quarantined.of("c1").set(1)
        metrics.rollup_quarantined.of("c2").set(1)
        assert registry.get_sample_value("bigfleet_shard_rollup_quarantined", {"cluster": "c1"}) == 1
        metrics.rollup_quarantined.forget("c1")
        assert registry.get_sample_value("bigfleet_shard_rollup_quarantined", {"cluster": "c1"}) is None
        assert registry.get_sample_value("bigfleet_shard_rollup_quarantined", {"cluster": "c2"}) == 1


def test_two_shards_in_one_process_count_apart() -> None:
    one, other = CollectorRegistry(), CollectorRegistry()
    ShardMetrics(one).actions_dropped.inc()
    ShardMetrics(other)
    assert one.get_sample_value("bigfleet_shard_actions_dropped_total") == 1
    assert other.get_sample_value("bigfleet_shard_actions_dropped_total") == 0


def test_a_metric_cannot_be_replaced_nor_reached_without_a_registry() -> None:
    metrics = ShardMetrics(CollectorRegistry())
    with pytest.raises(AttributeError, match="read-only"):
        metrics.shortfalls = metrics.active_sessions
    with pytest.raises(AttributeError, match="instances of ShardMetrics only"):
        _ = ShardMetrics.shortfalls


def test_the_wrong_number_of_label_values_is_an_error() -> None:
    metrics = ShardMetrics(CollectorRegistry())
    with pytest.raises(ValueError, match="zip"):
        metrics.action_execute_outcomes.of("Delete")
