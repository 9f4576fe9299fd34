"""How metrics are declared and made: a class lists the metrics, and an instance has them on one registry."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Generic, NoReturn, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

M = TypeVar("M", Counter, Gauge, Histogram)
T = TypeVar("T")


class LabelValueError(ValueError):
    """A value that the contract does not list for a metric's label."""


@dataclass(frozen=True, slots=True)
class Label:
    """A label and the values it may take; no values means any."""

    name: str
    values: tuple[str, ...] = ()


class Family(Generic[M]):
    """The series of one metric by label values; each is looked up once.

    The library's own `labels()` takes a lock and converts every value; this is one dict access on a hot path.
    """

    def __init__(self, metric: M, labels: tuple[Label, ...]) -> None:
        self._metric: M = metric
        self._labels = labels
        self._series: dict[tuple[str, ...], M] = {}
        # rate() does not see the first event of a counter that did not exist before it.
        if isinstance(metric, Counter) and all(label.values for label in labels):
            for values in product(*(label.values for label in labels)):
                self.of(*values)

    def of(self, *values: str) -> M:
        """The series with these label values, in the order of the declaration."""
        series = self._series.get(values)
        return self._bind(values) if series is None else series

    def forget(self, *values: str) -> None:
        """Drop a series, as when a cluster has left for good."""
        if self._series.pop(values, None) is not None:
            self._metric.remove(*values)

    def _bind(self, values: tuple[str, ...]) -> M:
        for label, value in zip(self._labels, values, strict=True):
            if label.values and value not in label.values:
                fitting = ", ".join(label.values)
                raise LabelValueError(f"label {label.name} of {self._metric} is one of {fitting}; not {value!r}")
        series: M = self._metric.labels(*values)
        return self._series.setdefault(values, series)


class Declared(Generic[T]):
    """One metric of a table: what the catalogue of metrics says of it, and how to make it on a registry."""

    def __init__(
        self,
        kind: type[Counter | Gauge | Histogram],
        name: str,
        text: str,
        labels: tuple[Label, ...],
        make: Callable[[CollectorRegistry], T],
    ) -> None:
        self.kind, self.name, self.text, self.labels, self.make = kind, name, text, labels, make

    def __get__(self, instance: object, owner: type) -> T:
        # An instance has the metric itself under this name, which Python finds first.
        raise AttributeError(f"{self.name} exists on instances of {owner.__name__} only")


class MetricTable:
    """The base of a program's metrics: makes every declared metric on a registry, and lets none be replaced."""

    def __init__(self, registry: CollectorRegistry) -> None:
        for attribute, declared in vars(type(self)).items():
            if isinstance(declared, Declared):
                self.__dict__[attribute] = declared.make(registry)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name} is read-only")


def counter(name: str, text: str) -> Declared[Counter]:
    """A total without labels."""
    return Declared(Counter, name, text, (), lambda registry: Counter(name, text, registry=registry))


def counters(name: str, text: str, *labels: Label) -> Declared[Family[Counter]]:
    """Totals by label."""
    return Declared(
        Counter,
        name,
        text,
        labels,
        lambda registry: Family(Counter(name, text, _names(labels), registry=registry), labels),
    )


def gauge(name: str, text: str) -> Declared[Gauge]:
    """A present value without labels."""
    return Declared(Gauge, name, text, (), lambda registry: Gauge(name, text, registry=registry))


def gauges(name: str, text: str, *labels: Label) -> Declared[Family[Gauge]]:
    """Present values by label."""
    return Declared(
        Gauge,
        name,
        text,
        labels,
        lambda registry: Family(Gauge(name, text, _names(labels), registry=registry), labels),
    )


def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Declared[Histogram]:
    """A distribution of seconds without labels."""
    return Declared(
        Histogram, name, text, (), lambda registry: Histogram(name, text, registry=registry, buckets=buckets)
    )


def histograms(name: str, text: str, buckets: tuple[float, ...], *labels: Label) -> Declared[Family[Histogram]]:
    """Distributions of seconds by label."""
    return Declared(
        Histogram,
        name,
        text,
        labels,
        lambda registry: Family(Histogram(name, text, _names(labels), registry=registry, buckets=buckets), labels),
    )


def _names(labels: tuple[Label, ...]) -> tuple[str, ...]:
    return tuple(label.name for label in labels)
