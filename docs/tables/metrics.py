"""The metrics as Markdown tables, from their definitions."""

from typing import Any

from allocator.service.show import mesos_metrics, metrics, user_metrics
from allocator.service.show.metric_definitions import MetricDefinition, MetricGroup
from allocator.service.slurm import metrics as slurm_metrics

GROUPS = (
    *user_metrics.GROUPS,
    *metrics.GROUPS,
    *mesos_metrics.GROUPS,
    *slurm_metrics.GROUPS,
)


def text() -> str:
    """Return a heading and a table for each group of metrics."""
    return "\n".join(map(_table, GROUPS))


def _table(group: MetricGroup[Any]) -> str:
    rows = "".join(f"| `{metric.name}` | {_meaning(metric)} |\n" for metric in group.metrics)
    head = "| metric | meaning, type, labels and unit |\n|---|---|\n"
    present = "" if group.present == "always" else f"Exported {group.present}.\n\n"
    return f"## {group.title}\n\n{present}{head}{rows}"


def _meaning(metric: MetricDefinition[Any]) -> str:
    """Return the second column of a metric: its help, type, labels and unit."""
    listed = ", ".join(f"`{label}`" for label in metric.labels)
    facts = [metric.kind, *([f"by {listed}"] if listed else []), metric.unit]
    return f"{metric.text}<br>*{'; '.join(facts)}*"
