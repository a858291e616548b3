"""The dashboards equal the output of their generator, and query only existing metrics."""

import json
import re
import runpy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from allocator.service.show import metrics, user_metrics
from tests.deploy.watched import DEPLOY, busy_service, prometheus, scraping
from tests.service.served import PATIENCE, wait_for

GRAFANA = DEPLOY / "grafana"
SHOWN = sorted((GRAFANA / "dashboards").glob("*.json"))


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def expressions(dashboard: dict[str, Any]) -> Iterator[str]:
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield target["expr"]


def filled_in(expression: str) -> str:
    """Replace the variables as Grafana does when "All" is selected."""
    plain = re.sub(r"\$(cluster|user|resource)", ".*", expression)
    return plain.replace("$__rate_interval", "5s")


def test_the_files_equal_the_output_of_the_generator() -> None:
    generator = runpy.run_path(str(GRAFANA / "generate.py"))
    made = {
        name: generator["text"](dashboard) for name, dashboard in generator["dashboards"]().items()
    }
    assert made == {path.name: path.read_text() for path in SHOWN}


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.stem)
def test_panels_do_not_overlap_and_are_numbered_apart(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    covered: set[tuple[int, int]] = set()
    numbers = []
    for panel in [*dashboard["panels"], *panels(dashboard)]:
        if panel["id"] in numbers:
            continue
        numbers.append(panel["id"])
        place = panel["gridPos"]
        cells = {
            (place["x"] + dx, place["y"] + dy)
            for dx in range(place["w"])
            for dy in range(place["h"])
        }
        assert not cells & covered
        assert place["x"] + place["w"] <= 24
        covered |= cells
    assert len(numbers) == len(set(numbers)) > 10


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.stem)
def test_cluster_user_and_resource_can_be_chosen(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    names = [variable["name"] for variable in dashboard["templating"]["list"]]
    assert names == ["source", "cluster", "user", "resource"]
    assert all("$cluster" in expression for expression in expressions(dashboard))


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.stem)
def test_no_panel_shows_amounts_of_different_resources_on_one_axis(path: Path) -> None:
    for panel in panels(json.loads(path.read_text())):
        texts = [target["expr"] for target in panel["targets"]]
        amounts = re.search(
            "user_allocation|quota_|mesos_master_(?:cpus|mem)[^|]*mesos_master_(?:mem|cpus)",
            " ".join(texts),
        )
        assert not amounts or panel.get("repeat") == "resource", panel["title"]


def test_every_panel_of_shares_has_data_with_slurm_and_with_mesos() -> None:
    """Each metric has a definition for users of both schedulers, and accepts both connections."""
    common = {
        definition.name
        for group in (metrics.POOL, *user_metrics.GROUPS)
        for definition in group.metrics
    }
    for expression in expressions(json.loads((GRAFANA / "dashboards/shares.json").read_text())):
        first, condition = expression.split(" and on (cluster, instance) ")
        assert first.partition("{")[0] in common
        assert "longshare_slurm_connected" in condition


@pytest.mark.slow
def test_every_panel_of_longshare_has_data_from_a_real_prometheus(tmp_path: Path) -> None:
    if prometheus() is None:
        pytest.skip("prometheus is not installed, so no panel is asked for")
    asked_for = {
        filled_in(expression)
        for path in SHOWN
        for expression in expressions(json.loads(path.read_text()))
        # All other panels need a policy that counts tasks, a Slurm, or an exporter.
        if not re.search("mesos_master|task_share|rate.*slurm|^longshare_slurm", expression)
    }
    assert len(asked_for) > 30
    with (
        busy_service(tmp_path) as (running, _),
        scraping(tmp_path, urlsplit(running.metrics_url).netloc) as asked,
    ):
        deadline = time.monotonic() + PATIENCE
        while asked_for and time.monotonic() < deadline:
            before = asked.scraped()
            asked_for -= {expression for expression in asked_for if asked.samples(expression)}
            if asked_for:
                wait_for(lambda before=before: asked.scraped() > before)  # type: ignore[misc]
    assert asked_for == set(), "no data"
