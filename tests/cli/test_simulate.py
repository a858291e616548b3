"""The command `longshare simulate`."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from allocator import provenance
from allocator.simulation import reference, store
from allocator.simulation.setting import Setting
from allocator.simulation.trace import MachineClass
from tests.film.reading import film_of
from tests.forks import longshare
from tests.simulation.crowded import trace_of

ROWS = [
    *((0, 10, "heavy", 1, 1), (0, 10, "heavy", 1, 1), (1, 10, "heavy", 1, 1)),
    *((2, 5, "light", 1, 1), (2, 5, "late", 9, 1)),
]
"""Tasks: a pool of two CPUs runs two of them at once, and the last task fits on no machine."""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.parquet"
    machines = (MachineClass("one", 2, (1.0, 8.0)),)
    store.write(trace_of(ROWS, machines, ((0,),), {"light": 0}), path)
    return path


def test_json_output_equals_the_written_summary(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    completed = longshare(
        *("simulate", str(trace), "--policy", "drf", "--capacity", "mem=8,cpus=2"),
        *("--out", str(out), "--reference", "--json"),
    )
    assert completed.returncode == 0, completed.stderr
    answer = json.loads(completed.stdout)
    assert answer == json.loads((out / "summary.json").read_text())
    assert (answer["longshare"], answer["seed"]) == (provenance(), None)
    assert answer["setting"] == {
        "policy": "drf",
        "parameters": {},
        "capacity": [2.0, 8.0],
        "load": None,
        "blocking": "head-of-line",
        "users": "known",
        "per": "user",
        "weights": {},
        "owes": {},
        "sampled": None,
    }
    assert (answer["tasks"], answer["started"], answer["never_started"]) == (5, 4, 1)
    # At 10 s `light` is next, then `heavy`; the trace ends at 11 s.
    assert answer["mean_user_wait_s"] == (9 / 3 + 8) / 2
    assert answer["completed"] == 2
    assert answer["last_finish_s"] == 20.0
    assert answer["utilization"]["cpus"] == 35 / 40
    assert answer["operations"]["minimum"]["count"] > 0
    tasks = pq.read_table(out / "tasks.parquet").to_pylist()
    assert tasks[2] == {
        "user": "heavy",
        "job": 0,
        "machine": 0,
        "submitted_us": 1_000_000,
        "started_us": 10_000_000,
        "finished_us": 20_000_000,
    }
    assert tasks[4]["started_us"] is tasks[4]["finished_us"] is tasks[4]["machine"] is None
    with (out / "users.csv").open(newline="") as file:
        users = {row.pop("user"): row for row in csv.DictReader(file)}
    assert users["heavy"]["mean_wait_s"] == "3.0"
    assert users["light"]["mean_slowdown"] == "1.3"
    assert users["late"]["mean_wait_s"] == ""
    # Percentiles of heavy's waits 0, 0 and 9.
    heavy = [float(users["heavy"][f"wait_{part}_s"]) for part in ("p50", "p90", "p99", "max")]
    assert heavy == pytest.approx([0.0, 7.2, 8.82, 9.0])
    series = pq.read_table(out / "series.parquet").to_pylist()
    assert {
        (row["user"], row["share"], row["running"], row["waiting"])
        for row in series
        if row["time_us"] == max(row["time_us"] for row in series if row["time_us"] < 10_000_000)
    } == {("heavy", 1.0, 2, 1), ("light", 0.0, 0, 1), ("late", 0.0, 0, 1)}
    assert {row["commitment"] for row in series} == {None}
    assert (out / "users.png").read_bytes()[:4] == b"\x89PNG"
    assert sorted(path.name for path in out.iterdir()) == [
        *("series.parquet", "summary.json", "tasks.parquet", "users.csv", "users.png"),
    ]


def test_the_default_output_is_a_table(trace: Path) -> None:
    command = ("simulate", str(trace), "--policy", "tsf", "--blocking", "skip")
    completed = longshare(*command, "--reference")
    assert completed.returncode == 0, completed.stderr
    assert "tsf on 2 machines: 5 tasks of 3 users" in completed.stdout
    assert "1 task fit on no machine" in completed.stdout
    assert "--load, usage and completed count them" in " ".join(completed.stdout.split())
    assert "mean of users' mean waits: 5.5 s" in completed.stdout
    [heavy] = [line.split() for line in completed.stdout.splitlines() if line.startswith("heavy")]
    assert heavy == ["heavy", "75.0%", "3", "66.7%", "3", "0", "7.2", "1.3"]


@pytest.mark.slow  # compiles the fast path
@pytest.mark.timeout(600)
def test_the_fast_path_and_the_reference_give_equal_results(trace: Path) -> None:
    command = ("simulate", str(trace), "--policy", "sdrf", "--set", "half_life=1m")
    load = ("--load", "0.9", "--json")
    fast = json.loads(longshare(*command, *load).stdout)
    plain = json.loads(longshare(*command, *load, "--reference").stdout)
    assert (fast["simulator"], plain["simulator"]) == ("fast", "reference")
    for own in ("simulator", "seconds", "compiling_s", "operations", "live_tree_events"):
        del fast[own], plain[own]
    assert fast == plain
    assert fast["setting"]["load"] == 0.9
    uncounted = json.loads(longshare(*command, *load, "--no-events").stdout)
    assert (uncounted["live_tree_events"], uncounted["operations"]) == (None, {})
    assert uncounted["mean_user_wait_s"] == plain["mean_user_wait_s"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--policy", "lottery"], "'lottery' is unknown"),
        (["--policy", "sdrf"], "either 'delta'"),
        (
            ["--policy", "drf", "--load", "0.5", "--capacity", "cpus=1"],
            "give --load or --capacity, not both",
        ),
        (["--policy", "drf", "--load", "-1"], "load -1"),
        (
            ["--policy", "drf", "--capacity", "cpus=1"],
            (
                "the trace also has the resource mem. Give each resource of the trace once: "
                "--capacity cpus=1,mem=N. If your cluster has no such resource, and the trace is "
                "from a CSV, convert the CSV with --resources cpus"
            ),
        ),
        (
            ["--policy", "drf", "--capacity", "cpu=1,mem=1"],
            "the trace has no resource cpu; did you mean cpus. Give each resource of the trace",
        ),
        (["--policy", "drf", "--capacity", "cpus=1,mem=1,cpus=2"], "a resource is named twice"),
        (["--policy", "drf", "--capacity", "cpus=1,mem"], "'mem' is not NAME=AMOUNT"),
        (["--policy", "drf", "--capacity", "cpus=1,mem=x"], "'mem=x' is not NAME=AMOUNT"),
        (["--policy", "drf", "--per", "task"], "task"),
    ],
)
def test_invalid_options_end_with_exit_code_2_and_a_reason(
    trace: Path, options: list[str], complaint: str
) -> None:
    completed = longshare("simulate", str(trace), *options)
    assert completed.returncode == 2
    assert complaint in completed.stderr


def test_a_file_that_is_not_a_trace_ends_with_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a trace")
    for file in (path, tmp_path / "none"):
        completed = longshare("simulate", str(file), "--policy", "drf", "--load", "1")
        assert completed.returncode == 2
        assert file.name in completed.stderr
        assert "rrno" not in completed.stderr
        assert "magic" not in completed.stderr
    assert f"{tmp_path / 'none'}: No such file or directory" in completed.stderr


def test_a_simulation_can_be_played_in_a_browser(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "film.html"
    completed = longshare(
        *("simulate", str(trace), "--policy", "drf", "--load", "0.5", "--html", str(page))
    )
    assert completed.returncode == 0, completed.stderr
    assert f"Time machine: {page}" in completed.stdout
    assert film_of(page.read_bytes())["about"]["source"] == trace.name


WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None  # as if it were not installed: its import fails
from allocator.cli import main
main()
"""


def test_without_numba_the_reference_simulator_takes_over_with_a_message(trace: Path) -> None:
    command = ("simulate", str(trace), "--policy", "drf", "--load", "0.9", "--json")
    completed = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMBA, *command], capture_output=True, text=True, check=True
    )
    answer = json.loads(completed.stdout)
    plain = json.loads(longshare(*command, "--reference").stdout)
    for measured in ("seconds", "operations"):
        del answer[measured], plain[measured]
    assert answer == plain
    assert completed.stderr.count("needs Numba") == 1
    assert "pip install 'longshare[" in completed.stderr


@pytest.mark.slow  # may compile the fast path
@pytest.mark.timeout(600)
def test_policies_are_compared_with_a_figure(trace: Path, tmp_path: Path) -> None:
    command = ("compare", str(trace), "--policies", "drf,sdrf:half_life=1m", "--capacity")
    completed = longshare(*command, "mem=8,cpus=2", "--out", str(tmp_path / "c.png"), "--json")
    assert completed.returncode == 0, completed.stderr
    answer = json.loads(completed.stdout)
    drf, sdrf = answer["policies"]
    assert (drf["policy"], drf["mean_user_wait_s"]) == ("drf", (9 / 3 + 8) / 2)
    # `heavy` has a commitment at 10 s, but `light` was first anyway.
    assert (sdrf["policy"], sdrf["reduction"]) == ("sdrf:half_life=1m", 0.0)
    assert (drf["reduction_low"], drf["reduction_high"]) == (None, None)
    assert (sdrf["reduction_low"], sdrf["reduction_high"]) == (None, None), "two users are few"
    assert (sdrf["light_low"], sdrf["light_high"]) == (None, None), "one user is light"
    assert sdrf["utilization"] == {"cpus": 35 / 40, "mem": 35 / 160}
    # Tasks wait until 10 s; the pool is full of CPUs from the start.
    assert sdrf["utilization_while_waiting"] == {"cpus": 1.0, "mem": 0.25}
    shown = longshare(*command, "mem=8,cpus=2", "--out", str(tmp_path / "c.png"))
    table = shown.stdout
    assert "On one pool of 2 cpus, 8 mem, with --blocking head-of-line:" in table
    row = next(line for line in table.splitlines() if line.startswith("sdrf"))
    assert (row.split()[3], row.split()[-1]) == ("+0.0%", "87.5%")
    assert "Large tasks block" not in shown.stderr
    assert sdrf["saved_s"] == {}
    assert (drf["verdict"], sdrf["verdict"]) == (None, "equal")
    assert "equal: no user's mean wait differs by more than a second." in " ".join(table.split())
    assert sdrf["skip"]["verdict"] == "equal"
    assert "Report the rule of your cluster, even if verdicts differ." in " ".join(table.split())
    assert "Which rule?" not in table, "the trace has no record"
    assert re.search(r"^sdrf:half_life=1m +skip +all .* equal *$", table, re.MULTILINE)
    assert "compare a longer history" not in table
    assert "no other months: add --periods N" in " ".join(table.split())
    assert (tmp_path / "c.png").read_bytes()[:4] == b"\x89PNG"
    for policies, complaint in (
        ("drf", "name two or more"),
        ("drf,sdrf", "either 'delta'"),
        ("drf,nope", "'nope' is unknown"),
    ):
        completed = longshare(*command[:3], policies, "--load", "1")
        assert (completed.returncode, completed.stdout) == (2, "")
        assert complaint in completed.stderr


@pytest.mark.slow  # may compile the fast path
@pytest.mark.timeout(600)
def test_periods_of_a_trace_are_compared_with_an_interval_over_periods(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    hour = [
        *((0, 100, "hog") for _ in range(30)),
        *((second, 10, user) for second in (50, 100) for user in ("ann", "bob")),
    ]
    rows = [(3600 * n + at, run, user, 1, 1) for n in range(6) for at, run, user in sorted(hour)]
    store.write(trace_of(rows), path)
    policies = ("--policies", "fifo,sdrf:half_life=10m", "--capacity", "cpus=4,mem=4")
    out = ("--out", str(tmp_path / "c.png"))
    command = ("compare", str(path), *policies, *out, "--group", "team=ann,bob", "--periods", "6")
    completed = longshare(*command, "--json", "--by-user", str(tmp_path / "users.csv"))
    assert completed.returncode == 0, completed.stderr
    fifo, sdrf = json.loads(completed.stdout)["policies"]
    with (tmp_path / "users.csv").open() as file:
        saved = {row["user"]: row for row in csv.DictReader(file)}
    assert set(saved) == {"hog", "ann", "bob"}
    assert float(saved["ann"]["saved_low_s"]) > 0.0
    assert float(saved["ann"]["saved_s"]) == pytest.approx(sdrf["saved_s"]["ann"])
    assert len(sdrf["periods"]) == 6
    assert sdrf["periods"][0]["from_s"] == 0.0
    assert all(period["reduction"] > 0.0 for period in sdrf["periods"])
    assert 0.0 < sdrf["periods_low"] <= sdrf["periods_reduction"] <= sdrf["periods_high"]
    assert (fifo["periods_reduction"], fifo["verdict"]) == (0.0, None)
    assert sdrf["verdict"] == "undecided", "three users give no interval over users"
    waits = [float(saved[user]["wait_s"]) for user in ("ann", "bob")]
    before = [float(saved[user]["baseline_wait_s"]) for user in ("ann", "bob")]
    team = sdrf["groups"]["team"]
    assert (team["users"], team["reduction_low"]) == (2, None)
    assert team["mean_user_wait_s"] == pytest.approx(sum(waits) / 2)
    assert team["reduction"] == pytest.approx(1.0 - sum(waits) / sum(before))
    assert 0.0 < team["periods_low"] <= team["periods_reduction"] <= team["periods_high"]
    assert team["verdict"] == "less", "other users do not matter to a named group"
    shown = " ".join(longshare(*command).stdout.split())
    assert "of tasks submitted in 6 periods of" in shown
    of_team = shown.partition("The same for the users team: ")[2].partition(" How sure")[0]
    assert len(re.findall(r" \+\d+\.\d%", of_team)) == 6
    assert "in which a user counts once for each period with tasks" in shown
    assert "add --periods N" not in shown
    assert "a period is shorter" not in shown
    assert 0.0 < sdrf["periods_light_low"] <= sdrf["periods_light"] <= sdrf["periods_light_high"]
    for users in ("all", "light", "team"):
        verdict = "less" if users == "team" else "undecided"
        cells = rf"\+\S+ \+\S+ {verdict} \[unknown\] \[\S+, \S+\]"
        assert re.search(rf" head-of-line {users} {cells}", shown), users
    assert "unknown: an interval over other users needs at least 5 users." in shown
    for group, complaint in (
        ("team=ann,bib", "the trace has no user bib; did you mean bob?"),
        ("light=ann", "the name light is taken"),
        ("ann,bob", "is not NAME=USER,USER"),
    ):
        refused = longshare(*command[:6], "--group", group)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert complaint in " ".join(refused.stderr.replace("│", " ").split())
    assert "take at most" in longshare(*command[:-1], "60").stdout
    slow = ("--policies", "fifo,sdrf:half_life=30m", *command[4:])
    shown = " ".join(longshare(*command[:2], *slow).stdout.split())
    assert "sdrf:half_life=30m: a period is shorter than 3 half-lives" in shown
    assert "take at most 3, or convert a longer history." in shown


@pytest.mark.slow  # may compile the fast path
@pytest.mark.timeout(600)
def test_a_comparison_warns_of_large_tasks_that_block_the_pool(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    rows = [(0, 10, "small", 1, 1), (1, 10, "large", 4, 1), (2, 10, "small", 1, 1)]
    store.write_generated(trace_of(rows), path, 7)
    command = ("compare", str(path), "--policies", "fifo,drf", "--capacity", "cpus=4,mem=2G")
    out = ("--out", str(tmp_path / "c.png"))
    blocked = longshare(*command, *out)
    assert blocked.returncode == 0, blocked.stderr
    assert "while tasks wait under drf, only 25% of cpus, the fullest resource" in blocked.stderr
    assert "Also compare with --blocking skip" not in blocked.stderr, "the output has skip"
    chosen = longshare(*command, "--blocking", "head-of-line", *out)
    assert "Also compare with --blocking skip" in chosen.stderr
    assert "skip" not in chosen.stdout
    assert "Large tasks block" not in longshare(*command, "--blocking", "skip", *out).stderr
    answer = json.loads(longshare(*command, *out, "--json").stdout)
    assert (answer["longshare"], answer["trace"], answer["seed"]) == (provenance(), str(path), 7)
    setting = answer["policies"][1]["setting"]
    assert (setting["policy"], setting["capacity"]) == ("drf", [4.0, 2048.0])


@pytest.mark.slow  # may compile the fast path
@pytest.mark.timeout(600)
def test_simulated_waits_are_compared_with_recorded_waits(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    rows = [(at, 100, user, 1, 1) for at in range(0, 4000, 500) for user in "abcde"]
    waits = np.array([0, 50, 100, 150, 200] * 8) * 1_000_000
    waits[0] = -1
    store.write_recorded(trace_of(rows), path, waits)
    command = ("compare", str(path), "--policies", "fifo,drf", "--capacity", "cpus=1,mem=9")
    out = ("--out", str(tmp_path / "c.png"))
    record = json.loads(longshare(*command, *out, "--json").stdout)["policies"][0]["record"]
    # One after the other: the users wait 0, 100, … 400 s; recorded are 0, 50, … 200 s.
    assert (record["tasks"], record["users"]) == (39, 5)
    assert (record["recorded_wait_s"], record["simulated_wait_s"]) == (100.0, 200.0)
    assert (record["ratio"], record["near"]) == (2.0, 5)
    assert 1.0 <= record["low"] <= 2.0 <= record["high"]
    shown = " ".join(longshare(*command, *out, "--blocking", "skip").stdout.split())
    assert "In the record of the first 39 tasks, the mean of users' mean waits is 1.7 min." in shown
    assert "reproduce the record under none" in shown
    assert "fifo, per job hold 3.3 min 200% [" in shown
    assert "fifo skip 3.3 min 200% [" in shown
    assert "Look only at rows of the policy that your cluster ran." in shown
    advised = longshare("advise", *command[1:2], *command[4:])
    assert (advised.returncode, advised.stdout) == (1, "")
    assert "no half-life changes any user's mean wait" in advised.stderr


@pytest.mark.slow  # may compile the fast path
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rule", ["head-of-line", "skip", "hold"])
def test_the_rule_that_reproduces_the_recorded_waits_is_chosen(rule: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    rows = [
        *((0, 1000, user, 2, 1) for user in "ab"),
        (1, 1000, "c", 4, 1),
        *((2 + at, run, user, 1, 1) for at in range(3) for run in (900, 3000) for user in "de"),
    ]
    trace = trace_of(sorted(rows))
    setting = Setting("fifo", capacity=(5.0, 99.0), blocking=rule, per="job")  # type: ignore[arg-type]
    waits = reference.simulate(trace, setting).wait
    store.write_recorded(trace, path, (waits * 1_000_000).astype(np.int64))
    command = ("compare", str(path), "--policies", "drf,tsf", "--capacity", "cpus=5,mem=99")
    out = ("--out", str(tmp_path / "c.png"))
    answer = json.loads(longshare(*command, *out, "--json").stdout)
    assert answer["rule_of_record"] == rule
    assert answer["record_of_fifo_per_job"][rule]["ratio"] == pytest.approx(1.0)
    assert [policy["setting"]["blocking"] for policy in answer["policies"]] == [rule, rule]
    shown = longshare(*command, *out).stdout
    verdict = f"Which rule? With {rule}, jobs in order of submission reproduce the record"
    assert shown.startswith(verdict), "the verdict is before the tables"
    assert f"with --blocking {rule}:" in shown


def test_memory_of_a_capacity_may_have_a_unit(trace: Path) -> None:
    def capacity(text: str) -> list[float]:
        command = ("simulate", str(trace), "--policy", "drf", "--reference", "--json")
        answer: list[float] = json.loads(longshare(*command, "--capacity", text).stdout)["setting"][
            "capacity"
        ]
        return answer

    assert capacity("cpus=2,mem=16G") == [2.0, 16384.0]
    assert capacity("cpus=2,mem=1.5 GiB") == [2.0, 1536.0]
    refused = longshare("simulate", str(trace), "--policy", "drf", "--capacity", "cpus=2G,mem=8")
    assert refused.returncode == 2
    assert "'cpus=2G' is not NAME=AMOUNT" in refused.stderr


def test_a_capacity_in_another_unit_than_the_trace_is_warned_of(trace: Path) -> None:
    def complaint(capacity: str) -> str:
        command = ("simulate", str(trace), "--policy", "drf", "--reference")
        return longshare(*command, "--capacity", capacity).stderr

    assert "--capacity mem=8192 is 2,253 times the trace's mean use" in complaint("cpus=2,mem=8G")
    assert "if the trace has plain GB, give the number of GB without a unit" in complaint(
        "cpus=2,mem=8G"
    )
    assert complaint("cpus=2,mem=8") == ""


@pytest.mark.parametrize("columns", [44, 60, 80])
def test_a_narrow_terminal_drops_columns_but_truncates_no_number(
    columns: int, tmp_path: Path
) -> None:
    path = tmp_path / "trace.parquet"
    machines = (MachineClass("one", 2, (1.0, 8.0)),)
    rows = [(0, 10, "somebody-with-a-name-of-40-characters", 1, 1), (0, 10, "light", 1, 1)]
    store.write(trace_of(rows, machines, (), {}), path)
    completed = longshare(
        "simulate", str(path), "--policy", "drf", env=os.environ | {"COLUMNS": str(columns)}
    )
    lines = completed.stdout.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("user "))
    headings, *users = lines[first : first + 3]
    assert headings.split()[:2] == ["user", "usage"]
    assert max(map(len, lines[first : first + 3])) <= columns
    assert all(user.split()[1] == "50.0%" for user in users)
    assert "…" not in headings + "".join(user.split()[-1] for user in users)
    names = "somebody-with-a", "light"
    if columns == 80:
        names = "somebody-with-a-name-of-40-char", "light"
    assert all(user.startswith(names) for user in users)


def test_the_heading_is_whole_above_names_of_one_letter(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    machines = (MachineClass("one", 2, (1.0, 8.0)),)
    store.write(trace_of([(0, 10, "a", 1, 1), (0, 10, "b", 1, 1)], machines, (), {}), path)
    completed = longshare("simulate", str(path), "--policy", "drf", "--reference")
    assert "\nuser  usage  tasks" in completed.stdout


def test_commitments_without_effect_or_of_more_than_the_cluster_are_named(trace: Path) -> None:
    run = ("simulate", str(trace), "--reference", "--owes", "light=50")
    completed = longshare(*run, "--policy", "drf")
    assert completed.returncode == 0
    assert completed.stderr.splitlines() == [
        "longshare: --owes light=50 is more than 1, which is all of a resource; write 50% as 0.5",
        "longshare: --owes has no effect: drf keeps no commitments",
    ]
    completed = longshare(*run, "--policy", "sdrf", "--set", "half_life=1d", "--owes", "late=1")
    assert completed.stderr.count("longshare:") == 1


def test_a_sampling_interval_without_a_unit_is_in_seconds(trace: Path) -> None:
    run = ("simulate", str(trace), "--policy", "drf", "--json", "--sampled")
    assert json.loads(longshare(*run, "5").stdout)["setting"]["sampled"] == 5.0
    assert "0.0 is not a sampling period" in longshare(*run, "0").stderr
