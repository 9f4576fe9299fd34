"""Writes the docs that are made from code: docs/reference, the index of docs/adr, the drawing of a machine's life.

`make generate` runs this; tests/docs/test_reference.py compares what it would write with what is there. Nothing here
depends on the terminal, the environment or the clock.
"""

import re
import tomllib
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import typer
import yaml

from bigfleet.cli import bigfleet as bigfleet_cli
from bigfleet.cli import operator as operator_cli
from bigfleet.cli import pod_controller as pod_controller_cli
from bigfleet.cli.ctl import bigfleetctl as bigfleetctl_cli
from bigfleet.model.machine import ASKS, EDGES, INVARIANTS, TRANSITIONAL, UNASKED, MachineState
from bigfleet.operator.config import OperatorConfig
from bigfleet.shard.config import Config, flag, plain
from bigfleet.telemetry.metric_types import Declared, MetricTable
from bigfleet.telemetry.metrics import (
    CoordinatorMetrics,
    OperatorMetrics,
    PodControllerMetrics,
    ProviderMetrics,
    ShardMetrics,
)

ROOT = Path(__file__).resolve().parent.parent
_DOCS = ROOT / "docs"
_WRITTEN = "<!-- Written by hack/reference.py (make generate). Change the code, not this page. -->\n\n"


class PageError(Exception):
    """Something in the code that no page could be written from; the message says what is missing and where."""


# ----------------------------------------------------------------------------------------------------------- metrics

_PROGRAMS: tuple[tuple[type[MetricTable], str], ...] = (
    (ShardMetrics, "Shard (`bigfleet shard`, port 8780)"),
    (OperatorMetrics, "Operator (`bigfleet operator`, port 8770)"),
    (PodControllerMetrics, "Pod controller (`bigfleet pod-controller`, port 8080)"),
    (ProviderMetrics, "Providers built on the kit (`bigfleet provider sim`, the example providers)"),
    (CoordinatorMetrics, "Coordinator (names of the contract; the program is not built yet)"),
)


def metrics_page() -> str:
    """The catalogue of metrics."""
    text = (
        "# Metrics\n\n" + _WRITTEN + "Every program serves its metrics at `/metrics` on its own port. A label with no "
        "values listed takes any. Histograms are in seconds and add `_bucket`, `_sum` and `_count` to their name. "
        "Readers that begin with *SLO* are the signals to write a service level on; "
        "[observability](../internals/observability.md) says how they hang together. "
        "The code is `src/bigfleet/telemetry/metrics.py`.\n"
    )
    readers = yaml.safe_load((ROOT / "hack" / "metric-readers.yaml").read_text())
    for table, title in _PROGRAMS:
        rows = []
        for row in vars(table).values():
            if not isinstance(row, Declared):
                continue
            if row.name not in readers:
                raise PageError(f"metric {row.name} has no reader; say in hack/metric-readers.yaml who looks at it")
            labels = [f"`{each.name}`{_values(each.values)}" for each in row.labels]
            rows.append(
                (f"`{row.name}`", row.kind.__name__.lower(), "; ".join(labels), row.text, readers.pop(row.name))
            )
        text += f"\n## {title}\n\n{table.__doc__}\n\n"
        text += _table(("name", "type", "labels", "meaning", "who reads it"), rows)
    if readers:
        raise PageError(f"hack/metric-readers.yaml has metrics that do not exist: {', '.join(readers)}")
    return text


def _values(values: tuple[str, ...]) -> str:
    if len(values) > 10:
        values = (*values[:4], "…", *values[-2:])
    return f": {', '.join(values)}" if values else ""


# ------------------------------------------------------------------------------------------------------------- flags

_TYPES = {str: "TEXT", int: "N", float: "N"}
_NOT_BUILT = "Not built yet: it says so and ends with 1.\n"


def _entry_points() -> dict[str, typer.Typer | None]:
    """Every console script and its commands; None where nothing is built behind the name."""
    pod_controller = typer.Typer(add_completion=False)
    pod_controller.command()(pod_controller_cli.pod_controller)
    return {
        "bigfleet": bigfleet_cli.app,
        "bigfleetctl": bigfleetctl_cli.app,
        "fauxctl": None,
        "bigfleet-operator": operator_cli.app,
        "bigfleet-unschedulable-pod-controller": pod_controller,
    }


def flags_page() -> str:
    """Every command with its options, and every key of the configurations."""
    points = _entry_points()
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    if scripts.keys() != points.keys():
        raise PageError(f"hack/reference.py and project.scripts differ: {sorted(scripts.keys() ^ points.keys())}")
    text = "# Commands, flags and settings\n\n" + _WRITTEN + "Every command also has `--help`.\n"
    shard_help: dict[str, str] = {}
    same: dict[str, str] = {}
    for name, app in points.items():
        if app is None:
            text += f"\n## `{name}`\n\n{_NOT_BUILT}"
            continue
        for path, command in _commands(typer.main.get_command(app), name):
            options = _table(("flag", "value", "default", "meaning"), [_option(each) for each in _params(command)])
            if path == "bigfleet shard":
                shard_help = {each.name: each.help for each in _params(command)}
            text += f"\n## `{path}`\n\n{_paragraphs(command.help)}"
            if options in same:
                text += f"\nIts options are those of `{same[options]}`.\n"
            elif options:
                text += "\n" + options
                same[options] = path
    return text + _shard_settings(shard_help) + _operator_settings()


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, each in sorted(getattr(command, "commands", {}).items()):
        yield from _commands(each, f"{path} {name}")


def _params(command: Any) -> list[Any]:
    return [each for each in command.params if each.name != "help"]


def _option(param: Any) -> tuple[str, str, str, str]:
    words = getattr(param, "help", None) or ""
    flags = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
    if param.param_type_name == "argument":
        flags = f"`{param.name.upper()}` (argument)"
    if param.multiple:
        flags += ", repeatable"
    if envvar := getattr(param, "envvar", None):
        words += f" Also from ${envvar}."
    default = ""
    if found := re.search(r" ?\[default: (.*)]", words):
        default, words = found[1], words[: found.start()] + words[found.end() :]
    elif param.required:
        default = "required"
    elif not getattr(param, "is_flag", False) and param.default not in (None, "", [], ()):
        default = str(param.default.value if isinstance(param.default, Enum) else param.default)
    return flags, _value(param), default.replace("<", "&lt;"), words.strip()


def _value(param: Any) -> str:
    if getattr(param, "is_flag", False):
        return ""
    kind = param.type_descriptor.annotation
    # For a list, the type of its elements.
    kind = next(iter(get_args(kind)), kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(str(each.value) for each in kind)
    limits = (
        "" if param.min is None and param.max is None else f" ({param.min} to {param.max})".replace("to None", "up")
    )
    return f"{param.metavar or _TYPES.get(kind, kind.__name__.upper())}{limits}"


def _shard_settings(words: dict[str, str]) -> str:
    defaults = plain(Config(data_dir=Path(), audit_log=Path()))
    made = {"data_dir": "made from the shard id", "audit_log": "`audit.jsonl` in the data directory"}
    rows = []
    for key in [*defaults, "tls_cert", "tls_key", "tls_ca"]:
        default = made.get(key) or _written(defaults.get(key))
        rows.append((f"`{key}`", f"`{flag(key)}`", default, re.sub(r" ?\[default: .*]", "", words[key])))
    return (
        "\n## The shard's configuration file\n\nOne YAML document, named by `--config`; a flag wins over its key.\n\n"
        + _table(("key", "flag", "default", "meaning"), rows)
    )


def _written(default: object) -> str:
    return (
        "" if default in (None, "", {}) else f"`{yaml.safe_dump(default, default_flow_style=True).split(chr(10))[0]}`"
    )


def _operator_settings() -> str:
    files = {"tls": "`--tls-cert`, `--tls-key`, `--tls-ca`"}
    known = {each.name for each in typer.main.get_command(operator_cli.app).params}
    rows = []
    for key in OperatorConfig.__struct_fields__:
        if key not in known and key not in files:
            raise PageError(f"the operator's setting {key} has no flag of that name; say so in hack/reference.py")
        rows.append((f"`{key}`", files.get(key, f"`--{key.replace('_', '-')}`")))
    return (
        "\n## The operator's settings\n\nThe operator has no configuration file: each setting is its flag.\n\n"
        + _table(("setting", "flag"), rows)
    )


# -------------------------------------------------------------------------------------------------------------- CRDs


def crds_page() -> str:
    """Every field of every custom resource."""
    text = (
        "# Custom resources\n\n" + _WRITTEN + "Group `bigfleet.lucy.sh`, version `v1alpha1`. `[]` is an element of a "
        "list, `{}` a value of a map. The files are `api/crd/*.yaml`; "
        "[ADR 4](../adr/0004-crd-validation.md) says why they validate as they do.\n"
    )
    for path in sorted((ROOT / "api" / "crd").glob("*.yaml")):
        spec = yaml.safe_load(path.read_text())["spec"]
        names, schema = spec["names"], spec["versions"][0]["schema"]["openAPIV3Schema"]
        text += f"\n## {names['kind']}\n\n{_paragraphs(schema['description'])}\n"
        text += f"{spec['scope']}; `kubectl get {names['plural']}` or {', '.join(names['shortNames'])}.\n\n"
        text += _table(("field", "type", "required", "description"), list(_fields(schema, "")))
    return text


def _fields(schema: dict[str, Any], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    for name, each in schema.get("properties", {}).items():
        if prefix or name not in {"apiVersion", "kind", "metadata"}:
            path = f"{prefix}.{name}" if prefix else name
            required = "yes" if name in schema.get("required", []) else ""
            yield f"`{path}`", _type(each), required, " ".join(each.get("description", "").split())
            yield from _fields(each, path)
            yield from _fields(each.get("items", {}), f"{path}[]")
            if isinstance(each.get("additionalProperties"), dict):
                yield from _fields(each["additionalProperties"], f"{path}{{}}")


def _type(schema: dict[str, Any]) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        kind = "quantity or integer"
    elif isinstance(inner := schema.get("additionalProperties"), dict):
        kind = f"map of {_type(inner)}"
    elif schema["type"] == "array":
        kind = f"list of {_type(schema['items'])}"
    else:
        kind = schema.get("format") or schema["type"]
    if "enum" in schema:
        kind += f": {', '.join(schema['enum'])}"
    if "default" in schema and not isinstance(schema["default"], dict):
        kind += f" (default {schema['default']})"
    return str(kind)


# ------------------------------------------------------------------------------------------------- decisions and life

_ADR_HEAD = re.compile(r"# (\d+)\. (.+)\n\nStatus: (.+)\n")


def adr_page() -> str:
    """The index of decisions, with the status of each."""
    pages: dict[int, tuple[str, str, str]] = {}
    for path in sorted((_DOCS / "adr").glob("[0-9]*.md")):
        found = _ADR_HEAD.match(path.read_text())
        if found is None or int(found[1]) != int(path.name[:4]):
            raise PageError(f"{path.name} must begin with `# N. Title`, N being its number, and a line `Status: …`")
        pages[int(found[1])] = path.name, found[2], found[3][:1].upper() + found[3][1:].rstrip(".")

    def linked(number: re.Match[str]) -> str:
        if int(number[0]) not in pages:
            raise PageError(f"docs/adr: a status names ADR {number[0]}, and there is no such page")
        return f"[{int(number[0])}]({pages[int(number[0])][0]})"

    rows = [
        (f"[{n}]({name})", title, re.sub(r"\b\d{4}\b", linked, status)) for n, (name, title, status) in pages.items()
    ]
    return (
        "# Decisions\n\n" + _WRITTEN + "One page a decision: context, decision, consequences. "
        "[ADR 1](0001-record-decisions.md) says when one is written, "
        "and\n[ADR 23](0023-how-a-page-may-change.md) how a "
        "page may change. Where a rule of [the protocol](../internals/protocol.md) or\n[the engine]"
        "(../internals/engine.md) and a decision differ, the rule wins, and the difference is a bug to report.\n\n"
        + _table(("", "decision", "status"), rows)
    )


LIFE = _DOCS / "internals" / "machine-life-cycle.md"
_BEGIN, _END = "<!-- drawing: hack/reference.py -->\n", "<!-- end of drawing -->\n"


def life_page() -> str:
    """The page about a machine's life as it stands, with the drawing and the tables made anew."""
    before, begin, rest = LIFE.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise PageError(f"{LIFE.name} lacks the marks between which its drawing goes")
    return before + begin + _life() + end + after


def _life() -> str:
    lines = ["```mermaid", "stateDiagram-v2"]
    asked = {(ask.source, ask.via) for ask in ASKS}
    lines += [f"  {ask.source.label} --> {ask.via.label}: {ask.call.value}" for ask in ASKS]
    done = dict.fromkeys((ask.via, ask.end) for ask in ASKS)
    lines += [f"  {via.label} --> {end.label}: done" for via, end in done]
    lines += [f"  {state.label} --> Failed: went wrong" for state in MachineState if state in TRANSITIONAL]
    # A transitional state's way to Failed is drawn already.
    unasked = sorted(edge for edge in UNASKED if not (edge[0] in TRANSITIONAL and edge[1] is MachineState.FAILED))
    lines += [f"  {a.label} --> {b.label}: unasked" for a, b in unasked if (a, b) not in done]
    drawn = asked | set(done) | set(unasked) | {(state, MachineState.FAILED) for state in TRANSITIONAL}
    lines += [f"  {a.label} --> {b.label}: nothing to do" for a, b in sorted(EDGES - drawn)]
    lines += ["```", ""]
    asks = [(a.call.value, a.source.label, a.host.value, a.via.label, a.end.label) for a in ASKS]
    fields = [(s.label, r.host.value, r.cluster.value, r.last_error.value) for s, r in INVARIANTS.items()]
    return (
        "\n".join(lines)
        + "\nWhat may be asked (`ASKS`):\n\n"
        + _table(("call", "from", "host", "through", "to"), asks)
        + "\nWhat a record must hold (`INVARIANTS`):\n\n"
        + _table(("state", "host", "cluster", "last_error"), fields)
    )


# ------------------------------------------------------------------------------------------------------------ writing


def _table(head: tuple[str, ...], rows: list[Any]) -> str:
    if not rows:
        return ""
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _paragraphs(text: str) -> str:
    return (
        "".join(" ".join(part.split()) + "\n" for part in text.split("\n\n")).replace("\n", "\n\n").rstrip("\n") + "\n"
    )


PAGES: dict[Path, Callable[[], str]] = {
    _DOCS / "reference" / "metrics.md": metrics_page,
    _DOCS / "reference" / "flags.md": flags_page,
    _DOCS / "reference" / "crds.md": crds_page,
    _DOCS / "adr" / "README.md": adr_page,
    LIFE: life_page,
}
"""Every file that is written here, and how."""


def main() -> None:
    """Write every page anew."""
    for path, page in PAGES.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(), encoding="utf-8")
        typer.echo(f"{path.relative_to(ROOT)} written")


if __name__ == "__main__":
    typer.run(main)
