"""The command `longshare advise`."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from allocator import provenance
from allocator.cli.advise import change_phrase
from allocator.fairness.policies.duration import seconds
from allocator.simulation import store
from tests.forks import longshare
from tests.simulation.test_advice import bursts_beside_a_hog


@pytest.fixture
def trace(tmp_path: Path) -> str:
    content = bursts_beside_a_hog(users="abcdefghijkl")
    waits = np.full(len(content), 10 * 10**6)
    store.write_recorded(content, tmp_path / "trace.parquet", waits)
    return str(tmp_path / "trace.parquet")


@pytest.mark.timeout(600)
@pytest.mark.slow  # compiles the fast path
def test_advice_is_printed_as_text_or_json(trace: str) -> None:
    completed = longshare("advise", trace, "--load", "0.8")
    assert completed.returncode == 0, completed.stderr
    assert "Best: half_life = " in completed.stdout
    assert "With --blocking head-of-line, the mean of users' mean waits is" in completed.stdout
    assert "With --blocking skip, the mean of users' mean waits is" in completed.stdout
    assert "Report the rule of your cluster" in completed.stdout
    assert "Two bursts of a light user" not in completed.stdout, "each user has one burst"
    assert re.search("^(Under both rules|No half-life is nearly)", completed.stdout, re.MULTILINE)
    advice = json.loads(longshare("advise", trace, "--load", "0.8", "--json").stdout)
    assert (advice["helps"], advice["decided"]) == (True, True)
    assert (advice["longshare"], advice["trace"]) == (provenance(), trace)
    assert advice["setting"]["load"] == 0.8
    assert advice["best"] in advice["trials"]
    for check in (advice["record"]["head-of-line"], advice["record"]["skip"]):
        assert check["recorded_wait_s"] == pytest.approx(10.0)
    assert advice["record"]["head-of-line"]["simulated_wait_s"] == advice["drf_wait_s"]
    assert advice["skip"]["best"] in advice["skip"]["trials"], "both rules are searched"
    advised = re.search(r'half_life = "([^"]*)"', completed.stdout)
    assert advised is not None
    assert seconds(advised[1]) == pytest.approx(advice["best"]["half_life_s"], rel=0.006)
    assert re.search(rf"^ *{re.escape(advised[1])} ", completed.stdout, re.MULTILINE), "its row"
    assert advice["best"]["groups"] == {}
    half_life = advice["best"]["half_life_s"]
    compared = longshare(
        *("compare", trace, "--policies", f"drf,sdrf:half_life={half_life}", "--load", "0.8"),
        *("--out", f"{trace}.png"),
    )
    reduction = f"{advice['best']['reduction']:+.1%}"
    assert reduction.startswith("+")
    assert reduction in compared.stdout, "advise and compare report the same reduction of waits"
    assert reduction in completed.stdout
    best = advice["best"]
    shown = " ".join(completed.stdout.split())
    interval = f"interval of less by: {best['low']:+.1%} to {best['high']:+.1%}; of light: "
    assert interval + f"{best['light_low']:+.1%} to {best['light_high']:+.1%}." in shown
    answer = json.loads(
        longshare(
            *("compare", trace, "--policies", f"drf,sdrf:half_life={half_life}", "--load", "0.8"),
            *("--out", f"{trace}.png", "--json"),
        ).stdout
    )
    row = answer["policies"][1]
    assert (row["light_low"], row["light_high"]) == (best["light_low"], best["light_high"])


@pytest.mark.timeout(600)
@pytest.mark.slow  # compiles the fast path
def test_waits_of_named_groups_are_those_of_compare(trace: str) -> None:
    few, many = "few=a,b", "[many]=a,b,c,d,e,f"
    options = (trace, "--load", "0.8", "--blocking", "skip", "--group", few, "--group", many)
    best = json.loads(longshare("advise", *options, "--json").stdout)["best"]
    policies = f"drf,sdrf:half_life={best['half_life_s']}"
    compared = longshare(
        "compare", *options, "--policies", policies, "--out", f"{trace}.png", "--json"
    )
    row = json.loads(compared.stdout)["policies"][1]["groups"]
    for name, group in best["groups"].items():
        same = ("reduction", "reduction_low", "reduction_high")
        assert [*group.values()] == pytest.approx([row[name][key] for key in same])
    assert best["groups"]["few"]["low"] is None
    shown = " ".join(longshare("advise", *options).stdout.split())
    assert "gain lose few [many]" in shown
    group = best["groups"]["[many]"]
    interval = f"of few: unknown, with fewer than 5 users; of [many]: {group['low']:+.1%} to"
    assert interval in shown


def test_a_group_of_advise_must_have_another_name_than_a_column(trace: str) -> None:
    for group, complaint in (("light=a", "name light is taken"), ("x=nobody", "no user nobody")):
        completed = longshare("advise", trace, "--load", "0.8", "--group", group)
        assert completed.returncode == 2
        assert complaint in completed.stderr


@pytest.mark.timeout(600)
@pytest.mark.slow  # compiles the fast path
def test_four_users_do_not_decide_about_a_half_life(tmp_path: Path) -> None:
    store.write(bursts_beside_a_hog(), tmp_path / "few.parquet")
    completed = longshare("advise", str(tmp_path / "few.parquet"), "--load", "0.8")
    assert completed.returncode == 0, completed.stderr
    assert "This trace does not show whether memory helps." in completed.stdout
    assert re.search(
        r'^Shortest mean wait: half_life = "[0-9.]+m" ', completed.stdout, re.MULTILINE
    )
    assert "interval of less by: unknown, with fewer than 5 users; of light: unknown" in (
        completed.stdout
    )
    assert re.search(r"^Two bursts of a light user begin 25m apart", completed.stdout, re.MULTILINE)
    assert "If light users matter most" not in completed.stdout
    assert "Best:" not in completed.stdout
    assert re.search(
        r'^If you must run sdrf: set half_life = "[0-9.]+[mhd]"', completed.stdout, re.MULTILINE
    )


@pytest.mark.timeout(600)
@pytest.mark.slow  # compiles the fast path
def test_a_cluster_without_waiting_ends_with_exit_code_1_and_the_reason(trace: str) -> None:
    completed = longshare("advise", trace, "--capacity", "cpus=1000,mem=1000")
    assert (completed.returncode, completed.stdout) == (1, "")
    assert "no user waits" in completed.stderr


@pytest.mark.timeout(600)
@pytest.mark.slow  # compiles the fast path
@pytest.mark.parametrize("command", [("advise",), ("compare", "--policies", "drf,tsf")])
def test_tasks_that_fit_nowhere_are_counted_or_refused(
    trace: str, command: tuple[str, ...], tmp_path: Path
) -> None:
    content = store.read(Path(trace))
    large = content.demand.copy()
    large[:3, 0] = 2000
    store.write(replace(content, demand=large), tmp_path / "large.parquet")
    arguments = (command[0], str(tmp_path / "large.parquet"), *command[1:])
    out = ("--out", str(tmp_path / "x.png")) if command[0] == "compare" else ()
    capacity = ("--capacity", "cpus=10,mem=1000")
    completed = longshare(*arguments, *capacity, *out)
    assert completed.returncode == 0, completed.stderr
    assert "3 tasks fit on no machine and never started" in completed.stdout
    answer = json.loads(longshare(*arguments, *capacity, *out, "--json").stdout)
    assert answer["never_started"] == 3
    completed = longshare(*arguments, "--capacity", "cpus=0.001,mem=0.001", *out)
    assert completed.returncode == 2
    assert "no task of the trace fits" in completed.stderr
    assert "smallest demands are cpus=" in completed.stderr


def test_a_trace_without_machines_needs_a_capacity(trace: str) -> None:
    completed = longshare("advise", trace)
    assert completed.returncode == 2
    assert "give --capacity cpus=N,mem=N, or --load L" in completed.stderr


@pytest.mark.parametrize(
    ("reduction", "phrase"),
    [(0.042, "4.2% less than"), (-0.077, "7.7% longer than"), (-1e-6, "as long as")],
)
def test_a_reduction_that_rounds_to_zero_is_called_neither_less_nor_longer(
    reduction: float, phrase: str
) -> None:
    assert change_phrase(reduction) == phrase
