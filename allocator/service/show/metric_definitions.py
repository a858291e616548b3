"""Definitions of metrics: name, labels, unit, help, and the function that reads the values.

The program exports metrics from their definitions, and the page on metrics is generated from them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Sample: TypeAlias = tuple[tuple[str, ...], float]
"""Label values of a metric's sample, and the sample's value."""
Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Unit: TypeAlias = Literal[
    "0 or 1",
    "amount",
    "amount × seconds",
    "fraction",
    "number",
    "seconds",
    "seconds since 1970",
]
"""Unit of a value. An amount is in the unit in which the scheduler counts the resource."""
SourceT = TypeVar("SourceT")


@dataclass(frozen=True, slots=True)
class MetricDefinition(Generic[SourceT]):
    """One metric, whose values are read from an object of the type `SourceT`."""

    name: str
    """Name as Prometheus shows the metric. The name of a counter ends with `_total`."""
    text: str
    """Help: the meaning of a value, in one line."""
    read: Callable[[SourceT], float | Iterable[Sample] | None] | None = None
    """Returns the value of a metric without labels, or the samples of a metric with labels; None if
    there is no value yet. The attribute is None if other code supplies the values."""
    labels: tuple[str, ...] = ()
    unit: Unit = "number"
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets; empty for other metrics."""

    @property
    def kind(self) -> Kind:
        """The type that Prometheus shows."""
        if self.buckets:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"

    def samples(self, source: SourceT) -> Iterable[Sample]:
        """Return the present samples; none if the metric has no value yet."""
        value = self.read(source) if self.read is not None else None
        if isinstance(value, Iterable):
            return value
        return () if value is None else (((), value),)

    def family(self) -> CounterMetricFamily | GaugeMetricFamily:
        """Return a new Prometheus family for samples of a counter or a gauge."""
        family = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        return family(self.name, self.text, labels=self.labels)


@dataclass(frozen=True, slots=True)
class MetricGroup(Generic[SourceT]):
    """Metrics that are read from the same object, under one heading of the page on metrics."""

    title: str
    metrics: tuple[MetricDefinition[SourceT], ...]
    present: str = "always"
    """When the program exports the group, as words for the page on metrics."""


class GroupCollector(Collector):
    """Reads the metrics of a group from an object at each scrape."""

    def __init__(self, group: MetricGroup[SourceT], source: SourceT) -> None:
        self._metrics: tuple[MetricDefinition[Any], ...] = group.metrics
        self._source = source

    def collect(self) -> Iterator[Metric]:
        """Yield the present values; a metric without a value yet has no sample."""
        for metric in self._metrics:
            if metric.read is not None:
                family = metric.family()
                for labels, number in metric.samples(self._source):
                    family.add_metric(labels, number)
                yield family


def register(registry: CollectorRegistry, *groups: tuple[MetricGroup[Any], object]) -> None:
    """Register groups of metrics, each with the object that it is read from.

    Args:
        registry: The registry to add to.
        groups: Groups and their objects. A group whose object is None is not exported.
    """
    for group, source in groups:
        if source is not None:
            registry.register(GroupCollector(group, source))
