"""The commands for accounts, audits, orders and forecasts against a running service."""

import csv
import io
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from allocator.cli import app, usage
from allocator.contract import admin_pb2 as admin
from allocator.contract import allocator_pb2 as contract
from allocator.service.accounting.database import Database
from allocator.service.accounting.queries import MOST_LINES, MOST_ORDERS, MOST_REFUSALS
from tests.cluster.master_side import SECOND, agent_call, framework_info, resources
from tests.service.served import PATIENCE, Service, Stream, service

SETTINGS = """
[policy]
name = "sdrf"
half_life = "1h"
[accounting]
every = 60
[[users.declared]]
name = "web"
commitment = 0.5
[[users.declared]]
name = "idle"
"""
SPAN = ("--since", "2020-09-13T12:00", "--until", "2020-09-13T14:00")
"""Interval that contains the master's clock."""
WIDE = {"COLUMNS": "80"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Run a service on which batch has held three of four cores for 100 s."""
    with service(tmp_path_factory.mktemp("accounts"), SETTINGS) as made:
        stream = Stream(made.address)
        stream.open(
            agents=[
                agent_call("s1", "cpus:4;mem:4096", {"f1": resources("cpus:3;mem:1024", "batch")})
            ],
            frameworks=[
                contract.AddFramework(
                    framework_id="f1", info=framework_info("f1", "batch"), active=False
                )
            ],
        )
        stream.now_ns += 100 * SECOND
        stream.tell(tick=contract.Tick())
        yield made
        stream.close()


def run(running: Service, *command: str, code: int = 0, looks: Mapping[str, str] = WIDE) -> Result:
    asked = [*command, "--address", running.address, "--timeout", str(PATIENCE)]
    made = CliRunner().invoke(app, asked, env=looks)
    assert made.exit_code == code, made.output
    return made


@pytest.mark.slow
def test_usage_is_a_table_csv_and_json(running: Service) -> None:
    shown = run(running, "usage", *SPAN).output
    assert max(map(len, shown.splitlines())) <= 80
    [row] = [line for line in shown.splitlines() if line.startswith("batch")]
    assert row.split()[:3] == ["batch", "cpus", "0.1"]
    rows = list(csv.DictReader(io.StringIO(run(running, "usage", *SPAN, "--csv").output)))
    [cpus] = [row for row in rows if (row["user"], row["resource"]) == ("batch", "cpus")]
    assert float(cpus["held"]) == pytest.approx(300.0)
    report = json.loads(run(running, "usage", *SPAN, "--by", "day", "--json").output)
    assert {row["day"] for row in report["rows"]} == {1599955200}
    assert {type(row[name]) for row in report["rows"] for name in ("offers", "refused")} == {int}
    assert json.loads(run(running, "usage", *SPAN, "--by", "role", "--json").output)["rows"]
    assert (
        "No user held"
        in run(running, "usage", "--since", "2001-01-01", "--until", "2002-01-01").output
    )
    for wrong in (
        ("--since", "yesterday"),
        ("--since", "1h", "--until", "2h"),
        ("--csv", "--json"),
    ):
        run(running, "usage", *wrong, code=2)


@pytest.mark.parametrize("name", ["web", "a-team/of/many/who/ask/for/much"])
@pytest.mark.parametrize(("width", "by_day"), [(60, False), (80, False), (80, True)])
def test_a_narrow_terminal_cuts_no_number_of_a_bill(name: str, width: int, *, by_day: bool) -> None:
    figures = {"held": 123_456.7, "overused": 12_345.6, "owed": 1_234.5, "entitled": 234_567.8}
    used = admin.Used()
    for column, amount in figures.items():
        setattr(used, column, 3600 * amount)
    row = admin.Usage(
        user=name, day=1599955200, resources={"mem": used}, offers=123_456, wanted=3600 * 24.0
    )
    console = Console(width=width, file=io.StringIO())
    console.print(usage._table([row], "user", width, by_day=by_day))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    [line] = [line for line in shown.splitlines() if "mem" in line]
    first, *numbers = line.removeprefix("2020-09-13 " if by_day else "").replace("mem", "").split()
    assert first.rstrip("…") == name[: len(first.rstrip("…"))]
    assert len(first) >= min(len(name), 16)
    assert numbers[:3] == ["123,456.7", "12,345.6", "1,234.5"]
    assert shown.count("…") == line.count("…") <= 1


@pytest.mark.slow
def test_usage_by_role_sums_the_frameworks_of_each_role(
    tmp_path: Path,
) -> None:
    with service(tmp_path, f'{SETTINGS}[users]\nkey = "framework_name"\n') as made:
        stream = Stream(made.address)
        used = {name: resources("cpus:1;mem:1024", "eng/web") for name in ("f1", "f2")}
        stream.open(
            agents=[agent_call("s1", "cpus:4;mem:4096", used)],
            frameworks=[
                contract.AddFramework(
                    framework_id=name, info=framework_info(name, "eng/web"), active=False
                )
                for name in used
            ],
        )
        stream.now_ns += 3600 * SECOND
        stream.tell(tick=contract.Tick())
        shown = run(made, "usage", *SPAN, "--by", "role").output
        assert [line.split() for line in shown.splitlines()][:7] == [
            ["held"],
            ["role", "resource", "×", "h", "offers", "refused"],
            ["eng", "cpus", "2.0", "0", "0"],
            ["mem", "2,048.0"],
            ["eng/web", "cpus", "2.0", "0", "0"],
            ["mem", "2,048.0"],
            ["total", "cpus", "2.0", "0", "0"],
        ]
        note = " ".join(shown.split())
        assert "Amounts: cpus in core-hours, mem in MiB-hours. Amounts of sub-roles are" in note
        rows = csv.DictReader(
            io.StringIO(run(made, "usage", *SPAN, "--by", "role", "--csv").output)
        )
        [cpus] = [row for row in rows if (row["role"], row["resource"]) == ("eng", "cpus")]
        assert (cpus["held"], cpus["owed"], cpus["waited"]) == ("7200.0", "", "")
        report = json.loads(run(made, "usage", *SPAN, "--by", "role", "--json").output)
        assert report["rows"][0]["resources"]["cpus"] == {"held": 7200.0, "unit": "core-seconds"}
        assert [row.get("within") or "" for row in report["rows"]] == ["", "eng"]
        assert report["total"]["resources"]["cpus"]["held"] == 7200.0
        assert "wanted" not in report["rows"][0]
        assert "f1" in run(made, "usage", *SPAN).output
        stream.close()


@pytest.mark.slow
def test_usage_counts_each_sub_role_once_and_can_be_limited_to_users(
    tmp_path: Path,
) -> None:
    roles = ("eng", "eng/web", "ops/db")
    with service(tmp_path, SETTINGS) as made:
        stream = Stream(made.address)
        used = {role: resources("cpus:1;mem:1024", role) for role in roles}
        stream.open(
            agents=[agent_call("s1", "cpus:4;mem:4096", used)],
            frameworks=[
                contract.AddFramework(
                    framework_id=role, info=framework_info(role, role), active=False
                )
                for role in roles
            ],
        )
        stream.now_ns += 3600 * SECOND
        stream.tell(tick=contract.Tick())

        def held(*options: str) -> tuple[dict[str, float], float]:
            report = json.loads(run(made, "usage", *SPAN, *options, "--json").output)
            rows = {row["user"]: row["resources"]["cpus"]["held"] for row in report["rows"]}
            return rows, report["total"]["resources"]["cpus"]["held"]

        for by in ("user", "role", "day"):
            rows, total = held("--by", by)
            assert {name: rows[name] / 3600 for name in ("eng", "eng/web", "ops", "ops/db")} == {
                "eng": 2.0,
                "eng/web": 1.0,
                "ops": 1.0,
                "ops/db": 1.0,
            }
            assert total == 3 * 3600.0
        assert held("--user", "eng/web", "--user", "ops") == (
            {"eng/web": 3600.0, "ops": 3600.0},
            7200.0,
        )
        table = csv.DictReader(
            io.StringIO(run(made, "usage", *SPAN, "--user", "eng/web", "--csv").output)
        )
        assert [(row["resource"], row["unit"], row["within"]) for row in table] == [
            ("cpus", "core-seconds", ""),
            ("mem", "MiB-seconds", ""),
        ]
        missing = run(made, "usage", *SPAN, "--user", "egn", "--user", "eng")
        assert missing.stderr == "longshare: no usage in that time: egn\n"
        stream.close()


@pytest.mark.slow
def test_setting_the_commitment_of_a_resource_keeps_commitments_of_other_resources(
    tmp_path: Path,
) -> None:
    with service(tmp_path, SETTINGS) as made:
        stream = Stream(made.address)
        stream.open(agents=[agent_call("s1", "cpus:4;mem:4096")])

        def order(*parts: str, code: int = 0) -> str:
            return run(made, "commitments", "set", "idle", *parts, code=code).output

        def owed() -> dict[str, str]:
            shares = json.loads(run(made, "shares", "--json").output)["users"]
            [idle] = [row for row in shares if row["user"] == "idle"]
            return {name: f"{part:.3f}" for name, part in idle["commitments"].items() if part}

        assert order("cpus=25%", "mem=12.5%").startswith("idle: commitment 0.0% → 25.0%, rank ")
        assert order("cpus=10%").startswith("idle: commitment of cpus 25.0% → 10.0%, rank ")
        assert owed() == {"cpus": "0.100", "mem": "0.125"}
        order("cpus=20%", "0.05")
        assert owed() == {"cpus": "0.200", "mem": "0.050"}
        order("0.1", "0.2", code=2)
        order("0")
        assert owed() == {}
        stream.close()


@pytest.mark.slow
def test_orders_are_audited_with_their_effect_and_boosts_show_their_end(
    running: Service,
) -> None:
    assert (
        "weight 1 → 4 for 2.0 h" in run(running, "weight", "set", "idle", "4", "--for", "2h").output
    )
    listed = run(running, "weight", "list").output
    assert "boost, ends in 2.0 h; then 1" in listed
    assert "default" in listed
    assert "configuration" in listed
    run(running, "weight", "set", "idle", "4", "--for", "soon", code=2)
    run(running, "weight", "unset", "idle")
    assert "commitment" in run(running, "commitments", "set", "idle", "cpus=25%", "mem=0.1").output
    run(running, "commitments", "set", "idle", "cpus=25%", "0.1")
    run(running, "commitments", "set", "idle", "0.5")
    run(running, "commitments", "set", "idle", "cpu=25%", code=1)
    run(running, "commitments", "set", "idle", "cpus=a", code=2)
    orders = json.loads(run(running, "audit", "--since", "1h", "--json").output)["orders"]
    assert [order["kind"] for order in orders] == [
        *("set_weight", "set_weight"),
        *("set_commitments",) * 4,
    ]
    assert {order["how"] for order in orders} == {"socket"}
    assert json.loads(orders[0]["before"])["idle"]["weight"] == 1.0
    assert json.loads(orders[0]["after"])["idle"]["weight"] == 4.0
    assert [bool(order["refusal"]) for order in orders] == [False] * 5 + [True]
    shown = run(running, "audit", "--since", "1h").output
    assert "set weight" in shown
    assert "set commitments all_resources=0.5 user=idle" in " ".join(shown.split())
    assert 'commitments={"cpus": 0.25} other_resources=0.1 user=idle' in " ".join(shown.split())
    assert "weight 1, no commitment → weight 4" in " ".join(shown.split())
    assert "REFUSED: the cluster has no 'cpu'; it has cpus, mem" in shown
    narrow = {"COLUMNS": "44", "TTY_COMPATIBLE": "1"}
    wrapped = run(running, "audit", "--since", "1h", looks=narrow).output.splitlines()
    assert max(map(len, wrapped)) <= 44
    begins = [number for number, line in enumerate(wrapped) if not line.startswith(" ")]
    assert len(begins) == len(orders), "each order begins a line; continuation lines are indented"
    assert " ".join(" ".join(wrapped).split()) == " ".join(shown.split())
    run(running, "commitments", "set", "idle", "0")  # as it was


@pytest.mark.slow
def test_a_forecast_is_shown_as_sentences_with_assumptions(running: Service) -> None:
    shown = run(running, "forecast", "web", "--below", "0.25").output
    assert "In 58.3 min its commitment falls to 25.0%." in shown
    assert "Assumed:" in shown
    forecast = json.loads(
        run(running, "forecast", "new", "--tasks", "3", "--demand", "cpus:1", "--json").output
    )
    wait = {"tasks": 3, "ahead": 0, "at_once": 3, "first_after": 0.0, "room": 1, "most": 4}
    assert forecast["wait"] == wait
    burst = run(running, "forecast", "idle", "--burst", "cpus:2", "--for", "2h").output
    assert "its commitment is 12.5%" in " ".join(burst.split())  # (2/4 − 1/3) · 3/4
    assert "no such user: nwe" in run(running, "forecast", "nwe", code=1).output
    assert (
        "whole cluster, which has"
        in run(running, "forecast", "new", "--tasks", "1", "--demand", "cpus:9", code=1).output
    )
    run(running, "forecast", "web", "--burst", "cpus:1", code=2)


@pytest.mark.slow
def test_without_a_store_an_order_warns_that_it_will_be_lost(tmp_path: Path) -> None:
    with service(
        tmp_path, SETTINGS.replace("[accounting]\nevery = 60", '[store]\nkind = "none"')
    ) as made:
        output = run(made, "weight", "set", "idle", "2").output
        assert "the change will not last: the service has no store" in output
        assert "keeps no accounts" in run(made, "usage", code=1).output


@pytest.mark.slow
def test_an_answer_is_bounded_and_says_how_to_see_the_rest(tmp_path: Path) -> None:
    noon = 1_600_000_000
    with closing(Database(tmp_path / "accounting.sqlite")):
        pass
    with closing(sqlite3.connect(tmp_path / "accounting.sqlite")) as connection, connection:
        acted = ((3600, noon - noon % 3600, f"user{number}") for number in range(MOST_LINES + 1))
        connection.executemany("INSERT INTO activity VALUES (?, ?, ?, 1, 0, 0.0, 0.0)", acted)
        ordered = ((str(number), noon + number) for number in range(MOST_ORDERS + 1))
        connection.executemany(
            "INSERT INTO orders VALUES (?, ?, 'ann', 'certificate', '', 'set_weight', '{}', '{}', "
            "'{}', '')",
            ordered,
        )
        refused = ((f"no-{number}", noon + number) for number in range(5 * MOST_ORDERS))
        connection.executemany(
            "INSERT INTO orders VALUES (?, ?, 'eve', 'certificate', '', '', '{}', '{}', '{}', "
            "'no right')",
            refused,
        )
    with service(tmp_path, SETTINGS) as made:
        output = run(made, "usage", "--since", "2020-09-13", "--until", "2020-09-14", code=1).output
        assert "more than 50,000 lines; ask for a shorter time" in output
        span = ("--since", "2020-09-13T12:00")
        first, *shown = run(made, "audit", *span).output.splitlines()
        assert sum(" ann " in line for line in shown) == MOST_ORDERS
        assert sum(" eve " in line for line in shown) == MOST_REFUSALS
        assert shown[MOST_ORDERS].startswith("Earlier refusals are left out; --until ")
        until = first.split("--until ")[1].split()[0]
        assert run(made, "audit", *span, "--until", until).output.count(" ann ") == 1


def test_no_cell_of_the_csv_of_usage_is_a_formula() -> None:
    used = {"=cmd": admin.Used(held=1.0, unit="=cmd-seconds")}
    (row,) = usage._rows([admin.Usage(user="=role", within="+role", resources=used)])
    assert not [cell for cell in row if str(cell).startswith(("=", "+"))]
