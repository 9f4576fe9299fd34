"""The bootstrap template: a Jinja2 text from which the user data of each machine is made."""

import re
import time
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from traceback import walk_tb
from typing import Self

import msgspec
import structlog
from jinja2 import TemplateSyntaxError, meta, nodes
from jinja2.exceptions import UndefinedError

from bigfleet.operator.bootstrap import go_template
from bigfleet.operator.bootstrap.go_template import GoTemplateError
from bigfleet.operator.bootstrap.sandbox import COUNTED, Sandbox, SandboxError

MAX_BLOB_BYTES = 1 << 20
"""The most user data that a provider takes."""
BUILT_IN = "the built-in template"
"""What errors call the template that is used without --bootstrap-template-file."""

_MAX_FILE_BYTES = 1 << 20
# Characters of a problem that an error shows.
_MAX_SHOWN = 300
# The file name in tracebacks of a template that has no file.
_TEMPLATE_FILE = "<template>"
_QUOTED = re.compile(r"'([^']*)'")

_log = structlog.get_logger("bigfleet.operator")


class BootstrapTemplateError(ValueError):
    """A template that cannot be used; the error names the file, the line (0 where there is none) and the problem."""

    def __init__(self, source: str, line: int, problem: str) -> None:
        self.source, self.line, self.problem = source, line, problem[:_MAX_SHOWN]
        super().__init__(f"{source}: line {line}: {self.problem}" if line else f"{source}: {self.problem}")


class RenderError(ValueError):
    """A template that failed for one machine; the text says why and quotes no value."""


class JoinFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a template may use about one machine and its cluster; `variables` gives the names."""

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
        return f"JoinFacts({self.cluster_id!r}, {self.machine_id!r})"

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
    """A taint whose parts go by the names of Kubernetes (key) and by those of a Go template (Key)."""

    @property
    def Key(self) -> str:  # noqa: N802 - a name of Go's
        """The taint's key."""
        return self["key"]

    @property
    def Value(self) -> str:  # noqa: N802
        """The taint's value."""
        return self["value"]

    @property
    def Effect(self) -> str:  # noqa: N802
        """The taint's effect."""
        return self["effect"]


_VARIABLES = tuple(JoinFacts(cluster_id="", endpoint="", ca_bundle="", token="", kubernetes_version="").variables())


class _AnyKey(dict[str, object]):
    """A sample mapping in which every key is found, as labels differ from machine to machine."""

    def __missing__(self, _key: str) -> str:
        return "1"


_SAMPLE = JoinFacts(
    cluster_id="sample",
    endpoint="https://sample:6443",
    ca_bundle="-----BEGIN CERTIFICATE-----\nsample\n-----END CERTIFICATE-----\n",
    token="sample.0123456789abcdef",  # noqa: S106 - of nothing
    kubernetes_version="v1.34.0",
    machine_id="sample-1",
    node_name="sample-1",
    provider_id="sample://1",
    taints=({"key": "sample", "value": "1", "effect": "NoSchedule"},),
)
_SAMPLE_VARIABLES = _SAMPLE.variables() | {
    "NodeSelector": _AnyKey({"sample": "1"}),
    "KubeletConfig": _AnyKey({"kind": "KubeletConfiguration", "clusterDNS": ["10.96.0.10"]}),
}


class BootstrapTemplate:
    """One version of the template, compiled."""

    def __init__(self, source: str, text: str) -> None:
        """Compile the text. BootstrapTemplateError where it is no template, or uses an unknown variable or filter."""
        self.source, self.text = source, text
        self._environment = Sandbox()
        try:
            self._template = self._environment.from_string(self._parsed(text))
        except BootstrapTemplateError:
            raise
        except Exception as error:  # noqa: BLE001 - Python has its own limits, as for blocks within blocks
            raise BootstrapTemplateError(source, 0, f"cannot be compiled: {type(error).__name__}: {error}") from None

    def render(self, facts: JoinFacts, clock: Callable[[], float] = time.monotonic) -> bytes:
        """The user data for one machine. Raises RenderError."""
        try:
            data = self._rendered(facts.variables(), clock)
        except SandboxError as error:
            raise RenderError(f"{self._at(error)}: {error}") from None
        except UndefinedError as error:
            raise RenderError(f"{self._at(error)}: {self._missing(error)}") from None
        except Exception as error:  # noqa: BLE001 - filters raise whatever Python does, and no template may end us
            # The exception's text may quote a value, such as the token.
            raise RenderError(f"{self._at(error)}: {type(error).__name__} at rendering") from None
        if not data:
            raise RenderError(f"{self.source} made nothing of these values")
        return data

    def check(self) -> None:
        """Render the template for a sample machine. BootstrapTemplateError where it cannot be used for any machine.

        A value that is undefined for the sample is no error: labels and the kubelet's configuration differ.
        """
        try:
            self._rendered(_SAMPLE_VARIABLES, time.monotonic)
        except UndefinedError:
            pass
        except Exception as error:  # noqa: BLE001 - as above; and samples are no secret
            problem = str(error) if isinstance(error, SandboxError) else f"{type(error).__name__}: {error}"
            raise BootstrapTemplateError(self.source, _line(error), problem) from None

    def _rendered(self, variables: Mapping[str, object], clock: Callable[[], float]) -> bytes:
        self._environment.begin(clock)
        chunks, size = [], 0
        for chunk in self._template.generate(variables):
            self._environment.check()
            chunks.append(encoded := chunk.encode())
            size += len(encoded)
            if size > MAX_BLOB_BYTES:
                raise SandboxError(f"it makes more than the {MAX_BLOB_BYTES} bytes that providers take")
        return b"".join(chunks)

    def _missing(self, error: UndefinedError) -> str:
        """What was not found. Only names that the template spells out are shown: a computed one may hold a secret."""
        problem = str(error)
        spelled = all(name.endswith(" object") or name in self.text for name in _QUOTED.findall(problem))
        return problem[:_MAX_SHOWN] if spelled else "a value that it looks up by another value is not there"

    def _at(self, error: Exception) -> str:
        line = _line(error)
        return f"{self.source}: line {line}" if line else self.source

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
            loop.iter = nodes.Filter(loop.iter, COUNTED, [], [], None, None, lineno=loop.lineno)
        tree.set_environment(self._environment)
        return tree


def _line(error: Exception) -> int:
    """The line of the template at which rendering failed; 0 where that is not known."""
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == _TEMPLATE_FILE]
    return lines[-1] if lines else 0


class LiveTemplate:
    """The template as its file holds it now; the built-in template where no file is given.

    The file is read at each use, because a mounted ConfigMap is exchanged by swapping a link. A new version that cannot
    be used is refused and logged once, and the last good version stays.
    """

    def __init__(self, path: Path | None, template: BootstrapTemplate) -> None:
        self._path, self._template = path, template
        self._refused = ""
        self._refused_text: str | None = None

    @classmethod
    def start(cls, path: Path | None) -> Self:
        """Read and check the template; BootstrapTemplateError says what is wrong with it."""
        if path is None:
            text = resources.files("bigfleet.operator.bootstrap").joinpath("default_template.j2").read_text()
            return cls(None, _checked(BUILT_IN, text))
        return cls(path, _checked(_named(path), _read(path)))

    def current(self) -> BootstrapTemplate:
        """The version to use now. Never raises."""
        if self._path is None:
            return self._template
        try:
            text = _read(self._path)
            if text == self._refused_text:
                # Checking it again may take as long as a rendering may.
                return self._template
            if text != self._template.text:
                self._refused_text = text
                self._template = _checked(_named(self._path), text)
                _log.info("bootstrap_template_changed", file=str(self._path))
            self._refused, self._refused_text = "", None
        except BootstrapTemplateError as error:
            if str(error) != self._refused:
                _log.warning("bootstrap_template_refused", reason=str(error), advice="the last good version stays")
            self._refused = str(error)
        return self._template


def _checked(source: str, text: str) -> BootstrapTemplate:
    template = BootstrapTemplate(source, text)
    template.check()
    return template


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
