"""A need as one line of JSON for programs. Fields are only ever added; docs/why-is-my-need-unmet.md lists them."""

import json
from datetime import UTC, datetime

from google.protobuf.descriptor import EnumDescriptor

from bigfleet.cli.ctl.need_words import InspectedNeed, explain, waits
from bigfleet.model.resources import quantities
from bigfleet.wire.v1alpha1 import shardread_pb2 as pb

_REASON, _CAUSE = "UNMET_REASON_", "NEED_CAUSE_"


def json_line(each: InspectedNeed, header: pb.InspectNeedsHeader) -> str:
    """One line about a need, in ASCII, so that no character in it can control a terminal."""
    view, need = each.view, each.need
    profile, explanation = need.profile, None
    if waits(view) or not view.satisfied:
        explanation = explain(each, header)
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
        "cycle_seconds": header.cycle_interval_millis / 1000,
        "owners": list(view.owners),
        "reason": "" if view.satisfied else _name(pb.UnmetReason.DESCRIPTOR, view.unmet_reason, _REASON),
        "cause": _name(pb.NeedCause.DESCRIPTOR, view.cause, _CAUSE) if view.cause else "",
        "cause_since": _time(view.cause_since_unix_nanos),
        "why": "" if explanation is None else explanation.why,
        "next": "" if explanation is None else explanation.next,
    }
    return json.dumps(fields, separators=(",", ":"))


def _name(enum: EnumDescriptor, number: int, prefix: str) -> str:
    """A value by its name in the contract, or by its number where a newer shard has one more."""
    value = enum.values_by_number.get(number)
    return str(number) if value is None else value.name.removeprefix(prefix)


def _time(unix_nanos: int) -> str:
    return datetime.fromtimestamp(unix_nanos // 10**9, UTC).isoformat().replace("+00:00", "Z") if unix_nanos else ""
