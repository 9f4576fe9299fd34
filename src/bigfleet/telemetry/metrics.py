"""Every metric of every program: name, labels, the values that a label may take, and buckets.

Names and values are a contract with dashboards and alerts; each program makes its own table on its own registry.
"""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from bigfleet.model.demand.penalty_buckets import PenaltyBucket
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.telemetry.metric_types import (
    Label,
    MetricTable,
    counter,
    counters,
    gauge,
    gauges,
    histogram,
    histograms,
)

# Decisions and passes over caches: from a millisecond to the ten seconds between two cycles.
_PASS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# One call to another program, up to the time after which callers give up.
_EXCHANGE = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
# What a cloud or a data centre takes: from seconds for warm hosts to beyond the 30 minutes that an action may take.
_HARDWARE = (1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 300.0, 450.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0)

_ACTION = Label("kind", ("Bootstrap", "Provision", "Reclaim", "Preempt", "Delete"))
_BUCKET = Label("interruption_penalty_bucket", tuple(bucket.label for bucket in PenaltyBucket))
_STATE = Label("state", tuple(state.label for state in MachineState))
# The contract lists four types. Machines without one are counted too, or the states would not add up.
_CAPACITY_TYPE = Label("capacity_type", tuple(kind.label for kind in CapacityType))
_CYCLE_PHASE = Label("phase", ("reconcile", "phase1", "phase2", "phase3", "execute"))
_METHOD = Label("method", ("Create", "Configure", "Drain", "Delete", "Get", "List"))
_TRANSITION = Label("call", ("Create", "Configure", "Drain", "Delete"))
_PHASE = Label("phase")
_OUTCOME = Label("outcome")
_CLUSTER = Label("cluster")
# The last is for needs beyond those whose cause one cycle looks for.
_CAUSE = Label(
    "reason",
    (
        "operator_away",
        "fall_doubted",
        "bootstrap_failed",
        "no_match",
        "too_large",
        "too_few",
        "domain_too_small",
        "skew",
        "paused",
        "file_unwritable",
        "provider_unreachable",
        "out_of_stock",
        "machines_failed",
        "machines_on_their_way",
        "preemption_exhausted",
        "outranked",
        "not_looked_for",
    ),
)
_PROVIDER = Label("provider")


class ShardMetrics(MetricTable):
    """What a shard decides, does and holds."""

    cycle_duration = histogram("bigfleet_shard_cycle_duration_seconds", "Length of a whole cycle.", _PASS)
    cycle_phase_duration = histograms(
        "bigfleet_shard_cycle_phase_duration_seconds", "Length of one phase of a cycle.", _PASS, _CYCLE_PHASE
    )
    actions = counters("bigfleet_shard_actions_total", "Actions decided.", _ACTION)
    action_execute_outcomes = counters(
        "bigfleet_shard_action_execute_outcomes_total", "Actions carried out, by how they ended.", _ACTION, _OUTCOME
    )
    actions_deferred = counter("bigfleet_shard_actions_deferred_total", "Actions left to a later cycle.")
    actions_dropped = counter("bigfleet_shard_actions_dropped_total", "Actions dropped before their first call.")
    actions_deduped = counter(
        "bigfleet_shard_actions_deduped_total", "Actions left out, their machine having one in flight."
    )
    action_queue_depth = gauge("bigfleet_shard_action_queue_depth", "Actions waiting to be carried out.")
    execute_inflight = gauge("bigfleet_shard_execute_inflight", "Actions being carried out.")
    inventory_machines = gauges("bigfleet_shard_inventory_machines", "Machines known.", _STATE, _CAPACITY_TYPE, _BUCKET)
    demand_machines = gauges("bigfleet_shard_demand_machines", "Rows of demand.", _BUCKET)
    shortfalls = gauge("bigfleet_shard_shortfalls", "Needs that the last decision left short.")
    shortfalls_by_priority = gauges(
        "bigfleet_shard_shortfalls_by_priority",
        "Needs left short, by class of priority.",
        Label("priority_class", ("batch", "service", "critical", "other")),
    )
    shortfalls_aged = gauges(
        "bigfleet_shard_shortfalls_aged",
        "Needs left short, by cycles of age.",
        Label("bucket", ("1-9", "10-59", "60-299", "300+")),
    )
    shortfalls_by_cluster = gauges(
        "bigfleet_shard_shortfalls_by_cluster",
        "Needs left short, by cluster and by the one cause of each.",
        _CLUSTER,
        _CAUSE,
    )
    provisioning_latency = histogram(
        "bigfleet_shard_provisioning_latency_seconds", "From deciding to provision until Configured.", _HARDWARE
    )
    configure_phase = histogram("bigfleet_shard_configure_phase_seconds", "From Configure until Configured.", _HARDWARE)
    request_bootstrap = histogram(
        "bigfleet_shard_request_bootstrap_seconds",
        "From asking an operator for a bootstrap blob to its answer.",
        _EXCHANGE,
    )
    drain_phase = histogram("bigfleet_shard_drain_phase_seconds", "From Drain until Idle.", _HARDWARE)
    reclaims_capped = counter(
        "bigfleet_shard_reclaims_capped_total", "Times that the rail held a cluster's reclaims back."
    )
    rollup_quarantined = gauges(
        "bigfleet_shard_rollup_quarantined", "1 while a cluster's roll-up waits for confirmation.", _CLUSTER
    )
    actions_suppressed = counters(
        "bigfleet_shard_actions_suppressed_total", "Actions not carried out, actuation being paused.", _ACTION
    )
    actuation_paused = gauge("bigfleet_shard_actuation_paused", "1 while actuation is paused.")
    engine_compiled = gauge("bigfleet_shard_engine_compiled", "1 once the decision engine runs compiled.")
    actions_dryrun = counters("bigfleet_shard_actions_dryrun_total", "Actions only logged, in dry-run.", _ACTION)
    idle_releases = counter("bigfleet_shard_idle_releases_total", "Idle machines given back to their provider.")
    machines_rejected = counters(
        "bigfleet_shard_machines_rejected_total",
        "Machine records refused.",
        Label("reason", ("price", "interruption_probability", "structural")),
    )
    rollups_rejected = counters("bigfleet_shard_rollups_rejected_total", "Roll-ups refused whole.", _CLUSTER)
    clusters_silent = gauge("bigfleet_shard_clusters_silent", "Clusters without a session for a day.")
    active_sessions = gauge("bigfleet_shard_active_sessions", "Operators connected.")
    session_lifecycle = counters(
        "bigfleet_shard_session_lifecycle_total",
        "Sessions begun, ended and replaced.",
        Label("event", ("installed", "removed", "replaced")),
    )
    session_identity_rejected = counter(
        "bigfleet_shard_session_identity_rejected_total", "Sessions refused for their certificate's identity."
    )
    provider_reachable = gauges(
        "bigfleet_shard_provider_reachable", "1 while a provider answers when it is asked for a list.", _PROVIDER
    )
    local_file_writable = gauge("bigfleet_shard_local_file_writable", "1 while the shard can write its local file.")
    machines_vanished = counters(
        "bigfleet_shard_machines_vanished_total", "Bound machines that their provider no longer has.", _PROVIDER
    )
    provider_rpc_duration = histograms(
        "bigfleet_shard_provider_rpc_duration_seconds", "Length of a call to a provider.", _EXCHANGE, _PROVIDER, _METHOD
    )
    provider_rpc_errors = counters(
        "bigfleet_shard_provider_rpc_errors_total", "Failed calls to a provider.", _PROVIDER, _METHOD, Label("code")
    )


class CoordinatorMetrics(MetricTable):
    """Leadership, store writes and instructions under way."""

    raft_term = gauge("bigfleet_coordinator_raft_term", "The leadership term.")
    leader = gauge("bigfleet_coordinator_leader", "1 while this replica leads.")
    apply = counters(
        "bigfleet_coordinator_apply_total", "Writes to the store.", Label("outcome", ("success", "error", "fsm_error"))
    )
    pending_instructions = gauges(
        "bigfleet_coordinator_pending_instructions", "Instructions that a shard has not acked.", Label("shard")
    )


class OperatorMetrics(MetricTable):
    """Roll-ups, acknowledgements, the session, and what is written to the cluster."""

    rollup_duration = histogram("bigfleet_operator_rollup_duration_seconds", "Length of a whole roll-up.", _PASS)
    rollup_phase_duration = histograms(
        "bigfleet_operator_rollup_phase_duration_seconds",
        "Length of one phase of a roll-up.",
        _PASS,
        Label("phase", ("list", "build", "enqueue")),
    )
    acknowledge_duration = histogram(
        "bigfleet_operator_acknowledge_duration_seconds", "Marking the requests of a roll-up Acknowledged.", _EXCHANGE
    )
    acknowledged = counters("bigfleet_operator_acknowledged_total", "Requests marked Acknowledged.", _PHASE)
    session_reconnects = counter("bigfleet_operator_session_reconnects_total", "Sessions begun after the first.")
    outbox_dropped = counter("bigfleet_operator_outbox_dropped_total", "Frames dropped from the full outbox.")
    node_state_update_duration = histograms(
        "bigfleet_operator_node_state_update_duration_seconds", "Handling one node state update.", _PASS, _PHASE
    )
    upcoming_node_writes = counters(
        "bigfleet_operator_upcoming_node_writes_total", "Writes of UpcomingNode objects.", Label("op"), _OUTCOME
    )


class PodControllerMetrics(MetricTable):
    """Pods turned into requests."""

    reconciles = counters("bigfleet_unschedulable_pod_controller_reconciles_total", "Pods looked at.", _OUTCOME)


class ProviderMetrics(MetricTable):
    """What a provider built on the kit holds and does."""

    machines = gauges("bigfleet_provider_machines", "Machines offered, by state.", _STATE)
    calls = counters("bigfleet_provider_calls_total", "Calls answered, by gRPC code.", _METHOD, Label("code"))
    call_duration = histograms("bigfleet_provider_call_duration_seconds", "Length of a call.", _EXCHANGE, _METHOD)
    transitions = counters(
        "bigfleet_provider_transitions_total",
        "Transitions that ended; one whose machine had moved on by then is late and changed nothing.",
        _TRANSITION,
        Label("outcome", ("done", "failed", "late")),
    )
    transition_duration = histograms(
        "bigfleet_provider_transition_duration_seconds", "Length of a transition.", _HARDWARE, _TRANSITION
    )
    orphans_ended = counter(
        "bigfleet_provider_orphans_ended_total", "Hosts ended that came to light after their Create had failed."
    )
    state_write_failures = counter(
        "bigfleet_provider_state_write_failures_total", "Writes of durable state that failed."
    )


def expose(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The registry in the format that an Accept header asks for, and that format's content type."""
    try:
        # Parts of the header come back in the content type, so it must be one line of printable text.
        encode, content_type = choose_encoder(accept if accept.isascii() and accept.isprintable() else "")
    except TypeError:
        # The library raises this for a version that is not made of numbers.
        encode, content_type = choose_encoder("")
    return encode(_ContractNames(registry)), content_type


class _ContractNames:
    """A registry without the `_created` series that the library adds to each counter and histogram."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
