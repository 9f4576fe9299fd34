"""The bootstrap template: what a machine is given to join the cluster, as sandboxed Jinja2.

Whoever may write the template may join nodes anyway, so the sandbox guards the operator against mistakes: a template
can reach no file and no object but the variables, and neither run nor grow without end.
"""

import base64
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Self

import msgspec
import structlog
import yaml
from jinja2 import StrictUndefined, TemplateSyntaxError, meta, nodes
from jinja2.exceptions import TemplateError, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from bigfleet.operator import go_template
from bigfleet.operator.go_template import GoTemplateError

MAX_BLOB_BYTES = 1 << 20
"""The most that a provider takes."""
MAX_RENDER_SECONDS = 2.0
BUILT_IN = "the built-in template"

_MAX_FILE_BYTES = 1 << 20
_MAX_SHOWN = 300

_log = structlog.get_logger("bigfleet.operator")

_LABEL_KEY = re.compile(r"(?:[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?", re.ASCII)
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_OWN_DOMAINS = ("kubernetes.io", "k8s.io")
# What NodeRestriction and the kubelet itself let a node say of itself within those domains.
_ALLOWED_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    }
)
_ALLOWED_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_EFFECTS = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})


class BootstrapTemplateError(ValueError):
    """A template that cannot be used; names the file, the line (0: none) and the problem."""

    def __init__(self, source: str, line: int, problem: str) -> None:
        self.source, self.line, self.problem = source, line, problem[:_MAX_SHOWN]
        super().__init__(f"{source}: line {line}: {self.problem}" if line else f"{source}: {self.problem}")


class RenderError(ValueError):
    """A template that made nothing of these values; says why, and never what the values are."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a template may name, under the name in CamelCase that `variables` gives it."""

    cluster_id: str
    endpoint: str
    ca_bundle: str
    token: str
    kubernetes_version: str
    machine_id: str = ""
    node_name: str = ""
    provider_id: str = ""
    node_selector: Mapping[str, str] = {}
    taints: tuple[Mapping[str, str], ...] = ()
    kubelet_config: Mapping[str, object] = {}

    def __repr__(self) -> str:
        # The token must not get into a log by way of a traceback.
        return f"Facts({self.cluster_id!r}, {self.machine_id!r})"

    def variables(self) -> dict[str, object]:
        """The variables of the template."""
        return {
            "ClusterID": self.cluster_id,
            "MachineID": self.machine_id,
            "NodeName": self.node_name,
            "ProviderID": self.provider_id,
            "NodeSelector": dict(self.node_selector),
            "Taints": [_Taint(taint) for taint in self.taints],
            "Token": self.token,
            "CABundle": self.ca_bundle,
            "Endpoint": self.endpoint,
            "KubernetesVersion": self.kubernetes_version,
            "KubeletConfig": dict(self.kubelet_config),
        }


class _Taint(dict[str, str]):
    """A taint that is called as Kubernetes calls it (key) or as a Go template would (Key)."""

    @property
    def Key(self) -> str:  # noqa: N802 - a name of Go's
        """Its key."""
        return self["key"]

    @property
    def Value(self) -> str:  # noqa: N802
        """Its value."""
        return self["value"]

    @property
    def Effect(self) -> str:  # noqa: N802
        """Its effect."""
        return self["effect"]


_VARIABLES = tuple(Facts(cluster_id="", endpoint="", ca_bundle="", token="", kubernetes_version="").variables())


class Template:
    """One version of a template, compiled."""

    def __init__(self, source: str, text: str) -> None:
        """BootstrapTemplateError where the text is no template, or names what is not known."""
        self.source, self.text = source, text
        self._environment = _Environment()
        self._template = self._environment.from_string(self._parsed(text))

    def render(self, facts: Facts, clock: Callable[[], float] = time.monotonic) -> bytes:
        """The user data for one machine. Raises RenderError."""
        self._environment.begin(clock)
        chunks, size = [], 0
        try:
            for chunk in self._template.generate(facts.variables()):
                self._environment.check()
                chunks.append(encoded := chunk.encode())
                size += len(encoded)
                if size > MAX_BLOB_BYTES:
                    raise RenderError(f"{self.source} makes more than the {MAX_BLOB_BYTES} bytes that providers take")
        except UndefinedError as error:
            # It names what is missing, and a template may look for anything.
            problem = str(error).replace(facts.token, "the token")
            raise RenderError(f"{self.source}: {problem[:_MAX_SHOWN]}") from None
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
            if isinstance(error, RenderError):
                raise
            # Its words may quote a value, the token among them.
            raise RenderError(f"{self.source}: {type(error).__name__} at rendering") from None
        if not size:
            raise RenderError(f"{self.source} made nothing of these values")
        return b"".join(chunks)

    def _parsed(self, text: str) -> nodes.Template:
        try:
            tree = self._environment.parse(go_template.to_jinja(text))
            self._environment.compile(tree)
        except GoTemplateError as error:
            raise BootstrapTemplateError(self.source, error.line, error.problem) from None
        except TemplateSyntaxError as error:
            raise BootstrapTemplateError(self.source, error.lineno, error.message or "no template") from None
        for other in tree.find_all((nodes.Extends, nodes.FromImport, nodes.Import, nodes.Include)):
            raise BootstrapTemplateError(self.source, other.lineno, "there is no other file: put its text in here")
        unknown = meta.find_undeclared_variables(tree) - {*_VARIABLES}
        for name in tree.find_all(nodes.Name):
            if name.name in unknown:
                shown = name.name.removeprefix("go_")
                problem = f"there is no variable {shown!r}: known are {', '.join(_VARIABLES)}"
                raise BootstrapTemplateError(self.source, name.lineno, problem)
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, _COUNTED, [], [], None, None, lineno=loop.lineno)
        tree.set_environment(self._environment)
        return tree


class LiveTemplate:
    """The template as its file has it now, the built-in one without a file.

    Whole contents are compared at each use, as a ConfigMap's mount swaps a link. A new version that cannot be used is
    refused, once in the log, and the last good one stays.
    """

    def __init__(self, path: Path | None, template: Template) -> None:
        self._path, self._template = path, template
        self._refused = ""

    @classmethod
    def start(cls, path: Path | None) -> Self:
        """Read and check it; BootstrapTemplateError says what is wrong with it."""
        if path is None:
            text = resources.files("bigfleet.operator").joinpath("default_template.j2").read_text()
            return cls(None, Template(BUILT_IN, text))
        return cls(path, Template(_named(path), _read(path)))

    def current(self) -> Template:
        """The version to use now. Never raises."""
        if self._path is None:
            return self._template
        try:
            text = _read(self._path)
            if text != self._template.text:
                self._template = Template(_named(self._path), text)
                _log.info("bootstrap_template_changed", file=str(self._path))
            self._refused = ""
        except BootstrapTemplateError as error:
            if str(error) != self._refused:
                _log.warning("bootstrap_template_refused", reason=str(error), advice="the last good version stays")
            self._refused = str(error)
        return self._template


def _named(path: Path) -> str:
    return f"--bootstrap-template-file {path}"


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise BootstrapTemplateError(_named(path), 0, f"is larger than {_MAX_FILE_BYTES} bytes")
        return content.decode()
    except OSError as error:
        raise BootstrapTemplateError(_named(path), 0, error.strerror or "cannot be read") from None
    except UnicodeDecodeError:
        raise BootstrapTemplateError(_named(path), 0, "is not UTF-8") from None


# What templates can do.

_COUNTED = "bigfleet_counted"


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja2 without files, without undefined values, and with an end."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True, loader=None)
        self.globals.clear()
        self.filters.update(_FILTERS)
        self.filters[_COUNTED] = self._counted
        self._clock: Callable[[], float] = time.monotonic
        self._until = math.inf

    def begin(self, clock: Callable[[], float]) -> None:
        """A rendering begins."""
        self._clock, self._until = clock, clock() + MAX_RENDER_SECONDS

    def check(self) -> None:
        """End a rendering that takes too long."""
        if self._clock() > self._until:
            raise RenderError(f"the template was not done after {MAX_RENDER_SECONDS:g} s")

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """A product or a width may be larger than memory, so only plain numbers are multiplied."""
        if operator == "*" and isinstance(left, int | float) and isinstance(right, int | float):
            return super().call_binop(context, operator, left, right)
        raise RenderError(f"the template may not use {operator!r} here")

    def _counted(self, values: Iterable[object]) -> Iterator[object]:
        for value in values:
            self.check()
            yield value


def _base64(text: str) -> str:
    return base64.b64encode(str(text).encode()).decode()


def _to_json(value: object) -> str:
    """JSON that is YAML too: that knows no surrogates and takes few characters raw."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(each if " " <= each <= "~" or each > "\uffff" else f"\\u{ord(each):04x}" for each in text)


def _to_yaml(value: object) -> str:
    plain = json.loads(json.dumps(value))
    return (
        yaml.safe_dump(plain, default_flow_style=False, sort_keys=True, width=math.inf).removesuffix("...\n").rstrip()
    )


def _indent(text: str, width: int = 4, first: bool = False) -> str:
    if not 0 <= width <= 100:
        raise RenderError("indent takes 0 to 100")
    margin = " " * width
    return (margin if first else "") + f"\n{margin}".join(str(text).splitlines())


def kubelet_labels(labels: Mapping[str, str]) -> str:
    """The value of --node-labels: those that a kubelet may set and that are labels at all, by key."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()) if _may_set(key, value))


def _may_set(key: str, value: str) -> bool:
    if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
        return False
    domain = key.rpartition("/")[0]
    if not any(domain == own or domain.endswith(f".{own}") for own in _OWN_DOMAINS):
        return True
    allowed = any(domain == each or domain.endswith(f".{each}") for each in _ALLOWED_DOMAINS)
    return key in _ALLOWED_LABELS or allowed


def kubelet_taints(taints: Iterable[Mapping[str, str]]) -> str:
    """The value of --register-with-taints: those that are taints at all."""
    return ",".join(
        f"{taint['key']}={taint['value']}:{taint['effect']}"
        for taint in taints
        if taint["effect"] in _EFFECTS and _LABEL_KEY.fullmatch(taint["key"]) and _LABEL_VALUE.fullmatch(taint["value"])
    )


def _pairs(values: Mapping[str, object] | list[object]) -> list[tuple[object, object]]:
    return list(sorted(values.items()) if isinstance(values, Mapping) else enumerate(values))


def _values(values: Mapping[str, object] | list[object]) -> list[object]:
    return [value for _, value in _pairs(values)]


_FILTERS: dict[str, Callable[..., object]] = {
    "base64": _base64,
    "to_json": _to_json,
    "to_yaml": _to_yaml,
    "indent": _indent,
    "kubelet_labels": kubelet_labels,
    "kubelet_taints": kubelet_taints,
    go_template.PAIRS: _pairs,
    go_template.VALUES: _values,
}
