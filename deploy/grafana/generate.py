"""Write Grafana's dashboards into this folder; a test fails if they are out of date."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "dashboards"
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_WIDTH = 24
"""Columns of Grafana's grid."""

HERE = 'cluster=~"$cluster"'
RESOURCE = f'{HERE}, resource=~"$resource"'
USER = f'{HERE}, user=~"$user"'
USER_RESOURCE = f'{USER}, resource=~"$resource"'
BUCKETS = f"rate(longshare_message_duration_seconds_bucket{{{HERE}}}[$__rate_interval])"
CONNECTED = f"(longshare_session_connected{{{HERE}}} or longshare_slurm_connected{{{HERE}}})"
"""1 for a service with a leading master or a Slurm, else 0."""
AGENTS = f"longshare_agents{{{HERE}}} or longshare_slurm_nodes{{{HERE}}}"
LEADING = f"and on (cluster, instance) {CONNECTED} == 1"
"""Restricts a query to connected services; standby services have no valid numbers."""


@dataclass(frozen=True)
class DashboardPanel:
    """A panel: its title, its queries, and its width, of 24 columns."""

    title: str
    says: str
    queries: tuple[tuple[str, str], ...]
    """PromQL, and the legend of its lines."""
    unit: str = "short"
    width: int = 12
    kind: str = "timeseries"
    stacked: bool = False
    repeat: str = ""
    """Variable with a copy of the panel for each value, for axes with a single unit."""
    steps: tuple[tuple[float | None, str], ...] = ()
    """From which value on which colour, for the kind `stat`."""


@dataclass(frozen=True)
class DashboardRow:
    """A heading and the panels below."""

    title: str
    panels: tuple[DashboardPanel, ...]
    collapsed: bool = False


def _ratio(title: str, says: str, metric: str, labels: str, legend: str) -> DashboardPanel:
    return DashboardPanel(
        title, says, ((f"{metric}{{{labels}}} {LEADING}", legend),), "percentunit"
    )


SHARES = (
    DashboardRow(
        "Who holds what",
        (
            DashboardPanel(
                "Dominant share against fair share",
                "Solid: the dominant share of a user. Dashed: its entitlement.",
                (
                    (f"longshare_user_dominant_share_ratio{{{USER}}} {LEADING}", "{{user}}"),
                    (f"longshare_user_entitlement_ratio{{{USER}}} {LEADING}", "{{user}} fair"),
                ),
                "percentunit",
            ),
            DashboardPanel(
                "Allocation",
                "Resources offered to or used by each user.",
                (
                    (
                        f"longshare_user_allocation{{{USER_RESOURCE}}} {LEADING}",
                        "{{user}}",
                    ),
                ),
                stacked=True,
                repeat="resource",
            ),
            _ratio(
                "Share of each resource",
                "Each user's allocation as a part of the cluster.",
                "longshare_user_share_ratio",
                USER_RESOURCE,
                "{{user}} {{resource}}",
            ),
            _ratio(
                "Shortfall",
                "Entitlement minus share of users that want offers.",
                "longshare_user_shortfall_ratio",
                USER,
                "{{user}}",
            ),
        ),
    ),
    DashboardRow(
        "Who owes what",
        (
            _ratio(
                "Commitment",
                "Each user's largest commitment for past over-use.",
                "longshare_user_dominant_commitment_ratio",
                USER,
                "{{user}}",
            ),
            _ratio(
                "Commitment by resource",
                "Each commitment moves towards the user's present over-use.",
                "longshare_user_commitment_ratio",
                USER_RESOURCE,
                "{{user}} {{resource}}",
            ),
        ),
    ),
    DashboardRow(
        "Who is next",
        (
            DashboardPanel(
                "Priority",
                "The user with the lowest priority is served first.",
                ((f"longshare_user_priority{{{USER}}} {LEADING}", "{{user}}"),),
            ),
            DashboardPanel(
                "Rank",
                "Rank by priority; 1 is next.",
                ((f"longshare_user_rank{{{USER}}} {LEADING}", "{{user}}"),),
            ),
            DashboardPanel(
                "Weight",
                "Weight of each user. Its entitlement is its part of all weights.",
                ((f"longshare_user_weight{{{USER}}} {LEADING}", "{{user}}"),),
            ),
            _ratio(
                "Task share",
                "Tasks held as a part of the tasks that the user could run alone. Only policies "
                "that count tasks have values.",
                "longshare_user_task_share_ratio",
                USER,
                "{{user}}",
            ),
        ),
    ),
)

HEALTH = (
    DashboardRow(
        "Now",
        (
            DashboardPanel(
                "Connected",
                "1 if a leading master or a Slurm is connected. Without one, the service decides "
                "nothing.",
                ((f"max by (cluster) ({CONNECTED})", "{{cluster}}"),),
                width=4,
                kind="stat",
                steps=((None, "red"), (1, "green")),
            ),
            DashboardPanel(
                "Standing by",
                "Connected masters that do not lead.",
                ((f"sum by (cluster) (longshare_standby_sessions{{{HERE}}})", "{{cluster}}"),),
                width=4,
                kind="stat",
            ),
            DashboardPanel(
                "Store degraded",
                "1: what users owe is in memory alone.",
                ((f"max by (cluster) (longshare_store_degraded{{{HERE}}})", "{{cluster}}"),),
                width=4,
                kind="stat",
                steps=((None, "green"), (1, "red")),
            ),
            DashboardPanel(
                "Agents or nodes",
                "Known to the leader, or to Slurm.",
                (
                    (
                        f"({AGENTS}) {LEADING}",
                        "{{cluster}}",
                    ),
                ),
                width=4,
                kind="stat",
            ),
            DashboardPanel(
                "Frameworks",
                "Known to the leader.",
                ((f"longshare_frameworks{{{HERE}}} {LEADING}", "{{cluster}}"),),
                width=4,
                kind="stat",
            ),
            DashboardPanel(
                "Last save",
                "Time since commitments were last stored.",
                (
                    (
                        f"time() - longshare_store_last_save_timestamp_seconds{{{HERE}}}",
                        "{{instance}}",
                    ),
                ),
                "s",
                width=4,
                kind="stat",
            ),
        ),
    ),
    DashboardRow(
        "Runs",
        (
            DashboardPanel(
                "Duration by phase",
                "Time to apply a message and allocate (decide), and to send decisions (write).",
                tuple(
                    (
                        f"histogram_quantile({quantile}, sum by (instance, phase, le) ({BUCKETS}))",
                        f"{{{{phase}}}} {name}",
                    )
                    for quantile, name in ((0.5, "half"), (0.99, "99 %"))
                ),
                "s",
            ),
            DashboardPanel(
                "Stream lag",
                "From reading the latest message to having handed over its decisions.",
                ((f"longshare_session_lag_seconds{{{HERE}}}", "{{instance}}"),),
                "s",
            ),
            DashboardPanel(
                "Longest pause",
                "Longest time that the event loop worked without a pause.",
                ((f"longshare_loop_longest_pause_seconds{{{HERE}}}", "{{instance}}"),),
                "s",
            ),
            DashboardPanel(
                "Events and runs",
                "Events of the master, and allocation cycles.",
                tuple(
                    (f"rate(longshare_{counter}_total{{{HERE}}}[$__rate_interval])", words)
                    for counter, words in (
                        ("events", "events"),
                        ("allocation_runs", "runs"),
                        ("candidates", "agents looked at"),
                    )
                ),
                "ops",
            ),
            DashboardPanel(
                "Offers",
                "Offers made, offers withheld by the master's side, and inverse offers.",
                tuple(
                    (f"rate(longshare_{counter}_total{{{HERE}}}[$__rate_interval])", words)
                    for counter, words in (
                        ("offers", "offers"),
                        ("rejected_offers", "withheld"),
                        ("inverse_offers", "inverse"),
                    )
                ),
                "ops",
            ),
        ),
    ),
    DashboardRow(
        "Order and filters",
        (
            DashboardPanel(
                "Live Tree",
                "Users that are ranked, and changes of rank.",
                (
                    (f"longshare_live_tree_elements{{{HERE}}} {LEADING}", "users"),
                    (
                        f"rate(longshare_live_tree_events_total{{{HERE}}}[$__rate_interval])",
                        "events per second",
                    ),
                ),
            ),
            DashboardPanel(
                "Next overtaking",
                "Earliest time until one user may pass another in the order, if allocations do not "
                "change. A run that is sped up shows experiment time minus wall-clock time.",
                (
                    (
                        f"longshare_live_tree_next_crossing_timestamp_seconds{{{HERE}}} - time()",
                        "{{cluster}}",
                    ),
                ),
                "s",
            ),
            DashboardPanel(
                "Offer filters by role",
                "Offer filters in force.",
                ((f"longshare_role_offer_filters{{{HERE}}} {LEADING}", "{{role}}"),),
                stacked=True,
            ),
            DashboardPanel(
                "Quotas",
                "Quota guarantees, and resources that count against them.",
                (
                    (
                        f"longshare_quota_guarantee{{{RESOURCE}}}",
                        "{{role}} guaranteed",
                    ),
                    (
                        f"longshare_quota_consumed{{{RESOURCE}}}",
                        "{{role}} consumed",
                    ),
                ),
                repeat="resource",
            ),
        ),
    ),
    DashboardRow(
        "What went wrong",
        (
            DashboardPanel(
                "Stream",
                "Sessions opened, and snapshots requested and restored.",
                tuple(
                    (f"increase(longshare_{counter}_total{{{HERE}}}[$__rate_interval])", counter)
                    for counter in ("sessions", "resyncs", "snapshots")
                ),
            ),
            DashboardPanel(
                "Oddities survived",
                "Recoveries of too much, calls about removed agents, clocks that ran backwards.",
                tuple(
                    (f"increase(longshare_{counter}_total{{{HERE}}}[$__rate_interval])", words)
                    for counter, words in (
                        ("clamped_events", "clamped"),
                        ("ignored_events", "ignored"),
                        ("early_stamps", "early stamps"),
                    )
                ),
            ),
            DashboardPanel(
                "Store",
                "Saves of commitments, and failed saves.",
                tuple(
                    (
                        f"increase(longshare_store_{counter}_total{{{HERE}}}[$__rate_interval])",
                        counter,
                    )
                    for counter in ("saves", "failures")
                ),
            ),
            DashboardPanel(
                "Cluster",
                "Allocated resources as a part of all agents.",
                (
                    (
                        f"longshare:cluster_allocated:ratio{{{RESOURCE}}} {LEADING}",
                        "{{resource}}",
                    ),
                ),
                "percentunit",
            ),
        ),
    ),
    DashboardRow(
        "Slurm",
        (
            DashboardPanel(
                "Jobs",
                "Jobs that run, that wait, and that the service has ordered.",
                tuple(
                    (f"longshare_slurm_{jobs}_jobs{{{HERE}}}", jobs)
                    for jobs in ("running", "pending", "ordered")
                ),
            ),
            DashboardPanel(
                "Duration of a reading",
                "Time to read Slurm's jobs and nodes.",
                ((f"longshare_slurm_reading_seconds{{{HERE}}}", "{{instance}}"),),
                "s",
            ),
            DashboardPanel(
                "Readings and updates",
                "Readings of Slurm, and changes of site factors, with the failed ones.",
                tuple(
                    (f"rate(longshare_slurm_{counter}_total{{{HERE}}}[$__rate_interval])", words)
                    for counter, words in (
                        ("readings", "readings"),
                        ("failed_readings", "failed readings"),
                        ("factor_updates", "updates"),
                        ("rejected_factor_updates", "rejected updates"),
                    )
                ),
                "ops",
            ),
        ),
        collapsed=True,
    ),
    DashboardRow(
        "The master itself (needs mesos_exporter)",
        (
            DashboardPanel(
                "CPUs",
                "CPUs, as the master counts them.",
                ((f"mesos_master_cpus{{{HERE}}}", "{{type}}"),),
            ),
            DashboardPanel(
                "Memory",
                "Memory, as the master counts it.",
                ((f"mesos_master_mem{{{HERE}}}", "{{type}}"),),
                "mbytes",
            ),
            DashboardPanel(
                "Tasks",
                "Tasks that run, stage and start.",
                ((f"mesos_master_task_states_current{{{HERE}}}", "{{state}}"),),
                stacked=True,
            ),
            DashboardPanel(
                "Agents and frameworks",
                "Agents by the state of their connection.",
                (
                    (f"mesos_master_slaves_state{{{HERE}}}", "agents {{state}}"),
                    (f"mesos_master_frameworks_state{{{HERE}}}", "frameworks {{state}}"),
                ),
            ),
            DashboardPanel(
                "Waiting in the master",
                "Offers without an answer, and the master's event queues.",
                (
                    (f"mesos_master_offers_pending{{{HERE}}}", "offers"),
                    (f"mesos_master_event_queue_length{{{HERE}}}", "queue: {{type}}"),
                ),
            ),
            DashboardPanel(
                "Allocation run, as the master measures it",
                "The module shows the service's time under the stock allocator's key.",
                (
                    (
                        f'mesos_master_allocation_run_ms{{{HERE}, type=~"mean|p50|p99"}}',
                        "{{type}}",
                    ),
                ),
                "ms",
            ),
            DashboardPanel(
                "Elected",
                "Which master leads.",
                ((f"mesos_master_elected{{{HERE}}}", "{{instance}}"),),
            ),
        ),
        collapsed=True,
    ),
)


def dashboards() -> dict[str, dict[str, Any]]:
    """Return each dashboard by the name of its file."""
    return {
        "shares.json": _dashboard("longshare-shares", "Shares and commitments", SHARES),
        "health.json": _dashboard("longshare-health", "Allocator health", HEALTH),
    }


def text(dashboard: dict[str, Any]) -> str:
    """Return the content of a dashboard's file."""
    return json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n"


def _dashboard(uid: str, title: str, rows: Iterable[DashboardRow]) -> dict[str, Any]:
    return {
        "uid": uid,
        "title": title,
        "tags": ["longshare"],
        "schemaVersion": 39,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "links": [
            {
                "type": "dashboards",
                "tags": ["longshare"],
                "title": "Longshare",
                "icon": "external link",
                "tooltip": "",
                "targetBlank": False,
                "asDropdown": True,
                "keepTime": True,
                "includeVars": True,
            }
        ],
        "annotations": {"list": [_restarts()]},
        "templating": {"list": _variables()},
        "panels": _laid_out(rows),
    }


def _restarts() -> dict[str, Any]:
    return {
        "name": "Snapshots",
        "datasource": _SOURCE,
        "enable": True,
        "iconColor": "orange",
        "target": {
            "refId": "snapshots",
            "expr": f"increase(longshare_snapshots_total{{{HERE}}}[1m]) > 0",
        },
        "titleFormat": "the service has taken a snapshot",
    }


def _variables() -> list[dict[str, Any]]:
    source = {
        "name": "source",
        "label": "Source",
        "type": "datasource",
        "query": "prometheus",
        "current": {"text": "Prometheus", "value": "prometheus"},
    }
    asked = {
        "cluster": "label_values(longshare_build_info, cluster)",
        "user": f"label_values(longshare_user_rank{{{HERE}}}, user)",
        "resource": f"label_values(longshare_capacity{{{HERE}}}, resource)",
    }
    return [
        source,
        *(
            {
                "name": name,
                "label": name.capitalize(),
                "type": "query",
                "datasource": _SOURCE,
                "query": {"query": query, "refId": name},
                "refresh": 2,
                "sort": 1,
                "multi": True,
                "includeAll": True,
                "allValue": ".*",
                "current": {"text": "All", "value": "$__all"},
            }
            for name, query in asked.items()
        ),
    ]


def _laid_out(rows: Iterable[DashboardRow]) -> list[dict[str, Any]]:
    """Give each panel its number and place, from left to right and top to bottom."""
    laid: list[dict[str, Any]] = []
    number = y = 0
    for row in rows:
        number += 1
        heading = {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": row.collapsed,
            "gridPos": {"x": 0, "y": y, "w": _WIDTH, "h": 1},
            "panels": [],
        }
        laid.append(heading)
        y += 1
        x, height, placed = 0, 0, []
        for panel in row.panels:
            number += 1
            if x + panel.width > _WIDTH:
                x, y = 0, y + height
            height = 4 if panel.kind == "stat" else 8
            place = {"x": x, "y": y, "w": panel.width, "h": height}
            placed.append(_panel(panel, number, place))
            x += panel.width
        y += height
        if row.collapsed:
            heading["panels"] = placed
        else:
            laid.extend(placed)
    return laid


def _panel(panel: DashboardPanel, number: int, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": expr, "legendFormat": name}
        for index, (expr, name) in enumerate(panel.queries)
    ]
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    options: dict[str, Any]
    if panel.kind == "stat":
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "background"}
        steps = panel.steps or ((None, "blue"),)
        defaults["thresholds"] = {
            "mode": "absolute",
            "steps": [{"value": value, "color": colour} for value, colour in steps],
        }
    else:
        options = {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
        defaults["custom"] = {
            "lineWidth": 2,
            "fillOpacity": 30 if panel.stacked else 0,
            "stacking": {"mode": "normal" if panel.stacked else "none"},
        }
    dashed = {
        "matcher": {"id": "byRegexp", "options": ".* (fair|guaranteed)$"},
        "properties": [
            {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 8]}},
            {"id": "custom.lineWidth", "value": 1},
        ],
    }
    repeated: dict[str, Any] = (
        {"repeat": panel.repeat, "repeatDirection": "h", "maxPerRow": 2} if panel.repeat else {}
    )
    return {
        "id": number,
        "type": panel.kind,
        "title": f"{panel.title}: ${panel.repeat}" if panel.repeat else panel.title,
        **repeated,
        "description": panel.says,
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": targets,
        "fieldConfig": {
            "defaults": defaults,
            "overrides": [dashed] if panel.kind == "timeseries" else [],
        },
        "options": options,
    }


def main() -> None:
    """Write all of them."""
    for name, dashboard in dashboards().items():
        (FOLDER / name).write_text(text(dashboard), encoding="utf-8")


if __name__ == "__main__":
    main()
