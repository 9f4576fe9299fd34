"""A need as one line of JSON for programs. Fields are only ever added; docs/why-is-my-need-unmet.md lists them."""

import json
from datetime import UTC, datetime

from bigfleet.cli.ctl.need_words import InspectedNeed, explain
from bigfleet.model.resources import quantities
from bigfleet.wire.v1alpha1 import shardread_pb2 as pb
from bigfleet.wire.v1alpha1.shardadmin_pb2 import ClusterStanding

_PREFIX = "UNMET_REASON_"


def json_line(each: InspectedNeed, header: pb.InspectNeedsHeader, cluster: ClusterStanding | None) -> str:
    """One line about a need, in ASCII, so that no character in it can control a terminal."""
    view, need = each.view, each.need
    profile, explanation = need.profile, None if view.satisfied else explain(each, cluster)
    fields = {
        "cluster": view.cluster_id,
        "cycle": header.cycle,
        "decided_at": _time(header.computed_at_unix_nanos),
        "profile": view.profile_fingerprint,
        "group": need.group,
        "priority": profile.priority,
        "requirements": [
            {"key": each.key, "operator": each.operator.label, "values": each.values} for each in profile.requirements
        ],
        "spread": [
            {"key": each.topology_key, "max_skew": each.max_skew, "when": each.when_unsatisfiable.label}
            for each in profile.spread
        ],
        "max_per_machine": profile.max_per_machine,
        "interruption_penalty": profile.interruption.label,
        "reclamation_penalty": profile.reclamation.label,
        "unit": quantities(need.unit),
        "units": need.units,
        "asked": quantities(need.aggregate),
        "first_seen": _time(view.arrival_unix_nanos),
        "satisfied": view.satisfied,
        "missing_units": each.missing_units,
        "missing": quantities(each.missing),
        "machines": view.claimed_machine_count,
        "machines_idle_chosen": view.bootstrap_count,
        "machines_to_create": view.provision_count,
        "domain": view.same_domain,
        "domain_exists": view.same_satisfiable,
        "parked": view.acquisition_parked,
        "parked_cycles": view.parked_age_cycles,
        "unmet_cycles": view.age_cycles_unmet,
        "reason": "" if view.satisfied else _reason(view.unmet_reason),
        "why": "" if explanation is None else explanation.why,
        "next": "" if explanation is None else explanation.next,
    }
    return json.dumps(fields, separators=(",", ":"))


def _reason(number: int) -> str:
    """The reason by its name in the contract, or by its number where a newer shard has one more."""
    name = {value.number: value.name for value in pb.UnmetReason.DESCRIPTOR.values}.get(number)
    return str(number) if name is None else name.removeprefix(_PREFIX)


def _time(unix_nanos: int) -> str:
    return datetime.fromtimestamp(unix_nanos // 10**9, UTC).isoformat().replace("+00:00", "Z") if unix_nanos else ""
