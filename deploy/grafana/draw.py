"""Draw a dashboard from a real Prometheus: `python -m deploy.grafana.draw docs/img/grafana.png`.

The program runs an experiment. Prometheus scrapes the experiment's service each second. The program
sends the queries of the panels as Grafana does, and draws the answers with matplotlib.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from allocator.palette import COLOURS, user_colours
from tests.deploy.watched import Prometheus, scraping
from tests.service.served import wait_for

DASHBOARD = Path(__file__).parent / "dashboards" / "shares.json"
EXPERIMENT = "sdrf-adaptive"
COLUMNS = 2


def main(picture: Path) -> None:
    """Run the experiment, and write the picture of the dashboard."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        start = time.time()
        longshare = Path(sys.executable).parent / "longshare"
        command: list[str | Path] = [
            longshare,
            "experiment",
            "run",
            EXPERIMENT,
            "--out",
            folder / "run",
        ]
        with (folder / "output").open("wb") as output:
            experiment = subprocess.Popen(command, stdout=output, stderr=output)  # noqa: S603
        try:
            wait_for(lambda: _address(folder) is not None)
            with scraping(folder, urlsplit(_address(folder) or "").netloc) as prometheus:
                experiment.wait()
                figure(prometheus, start, time.time()).savefig(picture, dpi=100)
        finally:
            experiment.kill()
            experiment.wait()


def _address(folder: Path) -> str | None:
    """Return the address of the service's metrics, or None before the service logs it."""
    logs = (path.read_text("utf-8") for path in folder.glob("run/**/*.log") if path.stat().st_size)
    match = re.search(r"http://[\d.:]+/metrics", "\n".join(logs))
    return match and match[0]


def figure(prometheus: Prometheus, start: float, end: float) -> Figure:
    """Return a drawing of the panels with data.

    Args:
        prometheus: Prometheus, with the data.
        start: Start of the horizontal axes, in seconds since 1970.
        end: End of the horizontal axes, in seconds since 1970.
    """
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    answers = [
        (title, panel, lines)
        for title, panel in _panels(dashboard, prometheus)
        if (lines := list(_lines(prometheus, panel, start, end)))
    ]
    first = min(line[1][0] for _, _, lines in answers for line in lines)
    rows = -(-len(answers) // COLUMNS)
    drawn = Figure(figsize=(12, 2.6 * rows), layout="constrained")
    axes = drawn.subplots(rows, COLUMNS, squeeze=False).flat
    for plot, (title, panel, lines) in zip(axes, answers, strict=False):
        _draw(plot, panel, [(label, [at - first for at in x], y) for label, x, y in lines])
        plot.set_title(title, loc="left", fontsize=10)
        plot.set_xlabel("seconds", fontsize=8)
    for plot in drawn.axes[len(answers) :]:
        plot.set_visible(False)
    return drawn


def _panels(
    dashboard: dict[str, Any], prometheus: Prometheus
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the title and definition of each panel, repeated as Grafana repeats panels."""
    for panel in dashboard["panels"]:
        if panel["type"] != "timeseries":
            continue
        if not (variable := panel.get("repeat")):
            yield panel["title"], panel
            continue
        samples = prometheus.samples("last_over_time(longshare_capacity[1h])")
        names = {sample["metric"]["resource"] for sample in samples}
        for name in sorted(names):
            text = json.dumps(panel).replace(f"${variable}", name)
            copy = json.loads(text)
            yield copy["title"], copy


def _lines(
    prometheus: Prometheus, panel: dict[str, Any], start: float, end: float
) -> Iterator[tuple[str, list[float], list[float]]]:
    """Yield the legend, times and values of each line of a panel."""
    for target in panel["targets"]:
        query = re.sub(r"\$(cluster|user|resource)", ".*", target["expr"])
        query = query.replace("$__rate_interval", "5s")
        answer = prometheus.get(
            "query_range", query=query, start=f"{start}", end=f"{end}", step="1"
        )
        for series in answer["result"]:
            label = re.sub(
                r"{{(\w+)}}",
                lambda name, labels=series["metric"]: labels.get(name[1], ""),  # type: ignore[misc]
                target["legendFormat"],
            )
            times, values = zip(*series["values"], strict=True)
            yield label, list(times), [float(value) for value in values]


def _draw(
    plot: Axes, panel: dict[str, Any], lines: list[tuple[str, list[float], list[float]]]
) -> None:
    colours = user_colours(sorted({label.split()[0] for label, _, _ in lines}))
    if panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal":
        times = sorted({at for _, x, _ in lines for at in x})
        parts = [dict(zip(x, y, strict=True)) for _, x, y in lines]
        plot.stackplot(
            times,
            [[part.get(at, 0.0) for at in times] for part in parts],
            labels=[label for label, _, _ in lines],
            colors=[COLOURS[colours[label.split()[0]]] for label, _, _ in lines],
            alpha=0.6,
        )
    else:
        names: set[str] = set()
        for label, x, y in lines:
            name = label.split()[0]
            dashes = "--" if label.endswith(" fair") or name in names else "-"
            names.add(name)
            plot.plot(x, y, dashes, color=COLOURS[colours[name]], linewidth=1.5, label=label)
    if panel["fieldConfig"]["defaults"]["unit"] == "percentunit":
        plot.yaxis.set_major_formatter(PercentFormatter(1.0))
    plot.set_ylim(bottom=0.0)
    plot.grid(color="0.92")
    plot.spines[["top", "right"]].set_visible(False)
    plot.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
