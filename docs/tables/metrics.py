"""The metrics as a Markdown table, according to the code that writes them."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from prometheus_client.metrics_core import Metric

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.fairness import policies
from allocator.service.accounting.accountant import AccountingStatistics
from allocator.service.connections import Connections
from allocator.service.loop.loop_latency import LoopLatency
from allocator.service.masters.session import SessionStatistics
from allocator.service.rights import Rights
from allocator.service.show import metrics, user_metrics
from allocator.service.show.shadows import ShadowCollector, Shadows
from allocator.service.store.writer import StoreStatistics

_UNITS = {
    "_resource_seconds": "amount × seconds",
    "_timestamp_seconds": "seconds since 1970",
    "_seconds": "seconds",
    "_ratio": "fraction",
}


def text() -> str:
    """Return a row for each metric: its name, help, type, labels and unit."""
    rows = sorted(map(_row, _families()))
    head = "| metric | meaning, type, labels and unit |\n|---|---|\n"
    return head + "".join(f"| `{name}` | {meaning} |\n" for name, meaning in rows)


def _families() -> Iterator[Metric]:
    """Yield all metrics, of a service that has every part and no user."""
    writing: Any = SimpleNamespace(failed=False)
    engine = Engine(EngineSettings(policies.create("drf", {})))
    statistics = SessionStatistics()
    registry = metrics.registry(
        engine,
        statistics,
        recorder=writing,
        event_log=writing,
        stored=StoreStatistics(),
    )
    registry.register(metrics.LoopCollector(LoopLatency()))
    registry.register(metrics.RefusalCollector(Rights(None), Connections()))
    registry.register(metrics.AccountingCollector(AccountingStatistics()))
    registry.register(ShadowCollector(Shadows({})))
    statistics.observe("decide", 0.0)
    yield from registry.collect()
    yield from user_metrics.families()


def _row(family: Metric) -> tuple[str, str]:
    suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
    labels = _labels(family)
    unit = next((unit for end, unit in _UNITS.items() if family.name.endswith(end)), "")
    if not unit and "resource" in labels:
        unit = "amount"
    listed = ", ".join(f"`{label}`" for label in labels)
    facts = [family.type, *([f"by {listed}"] if labels else []), *([unit] if unit else [])]
    meaning = family.documentation.replace("|", r"\|")
    return f"{family.name}{suffix}", f"{meaning}<br>*{'; '.join(facts)}*"


def _labels(family: Metric) -> list[str]:
    """Return the labels of a metric, which a family without samples names itself."""
    named: Any = getattr(family, "_labelnames", ())
    sampled = family.samples[0].labels if family.samples else {}
    return list(named) or sorted(sampled.keys() - {"le"})
