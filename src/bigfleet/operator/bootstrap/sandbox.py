"""The bounds of a bootstrap template: what it can reach, how long it can run and how much it can make.

Whoever may write the template may join nodes anyway, so the sandbox guards the operator against mistakes. A template
reaches no file and no object but its variables, and neither runs nor grows without end.
"""

import base64
import functools
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from string import Formatter
from typing import Any

import yaml
from jinja2 import StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from bigfleet.operator.bootstrap import go_template

MAX_RENDER_SECONDS = 2.0
"""What rendering one template may take."""

COUNTED = "bigfleet_counted"
"""The filter that every loop's values pass, so that the loop ends in time."""

# The largest number that a filter or a method may be given.
_MAX_COUNT = 10_000
_MAX_INDENT = 100
# Filters of Jinja2 whose output grows with a number that they are given.
_COUNTING = ("batch", "center", "round", "slice", "tojson")
_WIDE = re.compile(r"\d{5}")
_WIDE_PERCENT = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(?:\d{5}|\*|\d*\.(?:\d{5}|\*))")

_LABEL_KEY = re.compile(r"(?:[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?", re.ASCII)
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_OWN_DOMAINS = ("kubernetes.io", "k8s.io")
# Labels within those domains that NodeRestriction and the kubelet let a node set on itself.
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


class SandboxError(ValueError):
    """A template that exceeds a bound; the text names the bound and quotes no value."""


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja2 without files and without undefined values, bounded in time."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True, loader=None)
        self.globals.clear()
        self.filters.update({name: _bounded(name, self.filters[name]) for name in _COUNTING})
        self.filters["format"] = _percent_format
        self.filters.update(_FILTERS)
        self.filters[COUNTED] = self._counted
        self._clock: Callable[[], float] = time.monotonic
        self._until = math.inf

    def begin(self, clock: Callable[[], float]) -> None:
        """A rendering begins: from now on its time runs."""
        self._clock, self._until = clock, clock() + MAX_RENDER_SECONDS

    def check(self) -> None:
        """Raise SandboxError where the rendering has taken too long."""
        if self._clock() > self._until:
            raise SandboxError(f"the template was not done after {MAX_RENDER_SECONDS:g} s")

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Multiply plain numbers only: a repeated text or a width may be larger than memory."""
        if operator == "*" and isinstance(left, int | float) and isinstance(right, int | float):
            return super().call_binop(context, operator, left, right)
        raise SandboxError(f"the template may not use {operator!r} here")

    def call(self, context: Any, called: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a method with bounded numbers only: the output of some methods grows with their arguments."""
        if isinstance(getattr(called, "__self__", None), str | bytes | int):
            _check_counts(called.__name__, (*args, *kwargs.values()))
        return super().call(context, called, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """The `format` method of a text, without widths from variables and without large ones."""
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            for _, _, spec, _ in Formatter().parse(value.__self__):
                if spec and ("{" in spec or _WIDE.search(spec)):
                    raise SandboxError("format takes no width from a variable, and none above 9999")
        return wrapped

    def _counted(self, values: Iterable[object]) -> Iterator[object]:
        for value in values:
            self.check()
            yield value


def _check_counts(name: str, counts: Iterable[object]) -> None:
    if any(isinstance(each, int) and abs(each) > _MAX_COUNT for each in counts):
        raise SandboxError(f"{name} takes no number above {_MAX_COUNT}")


def _bounded(name: str, does: Callable[..., Any]) -> Callable[..., Any]:
    # A filter's first argument is the value; before it Jinja2 passes its context to filters that ask for that.
    values = 2 if hasattr(does, "jinja_pass_arg") else 1

    @functools.wraps(does)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        _check_counts(name, (*args[values:], *kwargs.values()))
        return does(*args, **kwargs)

    return bounded


def _percent_format(text: str, *args: Any, **kwargs: Any) -> str:
    if _WIDE_PERCENT.search(str(text)):
        raise SandboxError("format takes no width from a variable, and none above 9999")
    return str(text) % (kwargs or args)


def _base64(text: str) -> str:
    return base64.b64encode(str(text).encode()).decode()


def _to_json(value: object) -> str:
    """JSON that is YAML too. YAML knows no surrogates and allows few characters unescaped."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(each if " " <= each <= "~" or each > "\uffff" else f"\\u{ord(each):04x}" for each in text)


def _to_yaml(value: object) -> str:
    plain = json.loads(json.dumps(value))
    return (
        yaml.safe_dump(plain, default_flow_style=False, sort_keys=True, width=math.inf).removesuffix("...\n").rstrip()
    )


def _indent(text: str, width: int = 4, first: bool = False) -> str:
    if not 0 <= width <= _MAX_INDENT:
        raise SandboxError(f"indent takes 0 to {_MAX_INDENT}")
    margin = " " * width
    return (margin if first else "") + f"\n{margin}".join(str(text).splitlines())


def kubelet_labels(labels: Mapping[str, str]) -> str:
    """The value of --node-labels: the valid labels that a kubelet may set on its own Node, in order of keys."""
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
    """The value of --register-with-taints: the valid taints."""
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
