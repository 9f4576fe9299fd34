"""What a bootstrap template can do, and no more.

Whoever may write the template may join nodes anyway, so the sandbox guards the operator against mistakes: a template
can reach no file and no object but the variables, and neither run nor grow without end.
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
COUNTED = "bigfleet_counted"
"""The filter that a loop's values must pass, so that it ends in time."""

_MAX_COUNT = 10_000
# Filters of Jinja2's own that make as much as a number says.
_COUNTING = ("batch", "center", "round", "slice", "tojson")
_WIDE = re.compile(r"\d{5}")
_WIDE_PERCENT = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(?:\d{5}|\*|\d*\.(?:\d{5}|\*))")

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


class SandboxError(ValueError):
    """A template that wants more than it may; says what, and quotes no value."""


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja2 without files, without undefined values, and with an end."""

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
        """A rendering begins."""
        self._clock, self._until = clock, clock() + MAX_RENDER_SECONDS

    def check(self) -> None:
        """End a rendering that takes too long."""
        if self._clock() > self._until:
            raise SandboxError(f"the template was not done after {MAX_RENDER_SECONDS:g} s")

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """A product or a width may be larger than memory, so only plain numbers are multiplied."""
        if operator == "*" and isinstance(left, int | float) and isinstance(right, int | float):
            return super().call_binop(context, operator, left, right)
        raise SandboxError(f"the template may not use {operator!r} here")

    def call(self, context: Any, called: Any, *args: Any, **kwargs: Any) -> Any:
        """A method of a text or a number may make as much as it is told to."""
        if isinstance(getattr(called, "__self__", None), str | bytes | int):
            _check_counts(called.__name__, (*args, *kwargs.values()))
        return super().call(context, called, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`format` of a text, where no width is beyond bounds."""
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
    # The value comes first, after what Jinja2 passes to those that ask for it.
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
        raise SandboxError("indent takes 0 to 100")
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
