"""Files that cannot be read or written: the message names the file, the reason and the remedy."""

import re
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from allocator.cli import app
from allocator.simulation import store
from tests.forks import longshare
from tests.simulation.test_advice import bursts_beside_a_hog

CSV = "user,submitted_s,runtime_s,cpus\nann,0,10,1\n"
PROBLEM = '[[machines]]\nname = "m"\nresources = { cpus = 1 }\n'
READING = (
    "serve --config {file}",
    "replay {file}",
    "shares --config {file}",
    "weight list --config {file}",
    *(
        f"trace convert {{file}} out.parquet --from {form}"
        for form in ("csv", "sdrf", "swf", "google", "log", "slurm", "htcondor")
    ),
    "trace convert {file} out.parquet --from openb --nodes {file}",
    "trace convert jobs.csv out.parquet --from csv --users {file}",
    "trace convert jobs.csv out.parquet --from csv --machines {file}",
    "trace stats {file}",
    "trace head {file}",
    "simulate {file} --policy drf",
    "simulate trace.parquet --policy drf --policy-file {file}",
    "compare {file} --policies drf,tsf",
    "advise {file}",
    "lies {file} --policy drf",
    "sweep {file}",
    "report {file}",
    "optimum {file} --policy tsf",
    "incentives {file}",
    "games play {file} --policy sdrf",
    "experiment run drf-baseline --policy-file {file}",
)
"""Commands that read a file that does not exist."""
WRITING = (
    "trace convert jobs.csv {file} --from csv",
    "simulate trace.parquet --policy drf --load 0.5 --html {file}",
)
"""Commands that write a file into a folder that does not exist."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.csv").write_text(CSV)
    store.write(bursts_beside_a_hog(), tmp_path / "trace.parquet")
    return tmp_path


def message(command: str, file: str) -> str:
    """Run a command that exits with 2, and return its message as one line without a frame."""
    completed = CliRunner().invoke(app, command.format(file=file).split(), env={"COLUMNS": "300"})
    assert completed.exit_code == 2, completed.output
    return " ".join(completed.stderr.replace("│", " ").split())


def is_raw(text: str) -> bool:
    return re.search(r"\[Errno|\.part\b|Traceback|Error:", text) is not None


@pytest.mark.parametrize("command", READING)
def test_a_file_that_does_not_exist_is_named_with_a_remedy(command: str) -> None:
    text = message(command, "missing.x")
    assert "missing.x" in text
    assert not is_raw(text), text
    assert re.search("; (check the path|name a file|'longshare)", text), text


@pytest.mark.parametrize("command", WRITING)
def test_a_folder_that_does_not_exist_is_named_with_a_remedy(command: str) -> None:
    text = message(command, "missing/out.x")
    assert "missing/out.x: No such file or directory" in text
    assert not is_raw(text), text
    assert re.search("; create the folder .*missing, or check the path", text), text


def test_each_mistake_of_a_sweep_has_a_line_of_its_own(folder: Path) -> None:
    (folder / "study.toml").write_text(
        'title = 1\n[[traces]]\npath = "x"\n[[grid]]\npolices = ["drf"]\nloads = ["half"]\n'
    )
    completed = CliRunner().invoke(app, ["sweep", "study.toml"])
    first, *mistakes = completed.stderr.splitlines()
    assert first == f"longshare: study.toml: {len(mistakes)} mistakes"
    assert len(mistakes) > 2
    assert all(re.fullmatch(r"  \S+: .+", mistake) for mistake in mistakes), mistakes


@pytest.mark.parametrize(
    ("command", "suggestion"),
    [
        (
            "simulate trace.parquet --load 0.5 --policy sdrff",
            "'sdrff' is unknown; did you mean sdrf?",
        ),
        ("compare trace.parquet --policies drf,tsff --load 0.5", "did you mean tsf?"),
        ("simulate trace.parquet --policy drf --blocking skp", "did you mean skip?"),
        ("trace convert jobs.csv out.parquet --from cvs", "did you mean csv?"),
        ("optimum problem.toml --policy ttsf", "did you mean"),
        ("properties --policy drf --property envy", "did you mean envy-freeness?"),
        ("games search --policy drf --property envy-fredom", "did you mean envy-freeness?"),
        ("games search --policy dynamic-df", "did you mean dynamic-drf?"),
        ("figure sdrf-33", "did you mean sdrf-3?"),
        ("experiment run drf-base", "did you mean drf-baseline?"),
        ("sweep tsf-smal", "did you mean tsf-small?"),
    ],
)
def test_an_unknown_name_is_answered_with_a_similar_one(
    folder: Path, command: str, suggestion: str
) -> None:
    (folder / "problem.toml").write_text(PROBLEM)
    assert suggestion in message(command, "")


def test_a_unit_in_an_amount_of_the_embedded_mesos_is_named() -> None:
    text = message("local-mesos --resources cpus:4;mem:4GB", "")
    assert "'mem:4GB': '4GB' is not a number; write one without a unit" in text


def test_agents_without_attributes_are_shown_to_a_user_who_gives_too_few_attributes() -> None:
    kinds = "--agents 2 --resources cpus:4 --agents 2 --resources cpus:4;gpus:1"
    text = message(f"local-mesos {kinds} --attributes gpu:a100", "")
    assert "1 --attributes" in text
    assert "--attributes '' for agents without attributes" in text


def test_a_missing_certificate_is_named_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGSHARE_CA", "missing.pem")
    text = message("shares", "")
    assert text == "longshare: TLS: missing.pem: No such file or directory; check the path"


def test_a_port_of_another_program_is_named_without_a_number_of_the_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other_program:
        port = other_program.getsockname()[1]
        completed = CliRunner().invoke(app, ["local-mesos", "--port", str(port)])
    assert completed.exit_code == 1
    assert completed.stderr == (
        f"longshare local-mesos: cannot listen on 127.0.0.1:{port}: address already in use; "
        "stop the other program, or choose another --port, and --master for frameworks\n"
    )


def test_a_service_whose_port_is_taken_may_be_started_again(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other_program:
        address = f"127.0.0.1:{other_program.getsockname()[1]}"
        (folder / "longshare.toml").write_text(
            f'[metrics]\naddress = "127.0.0.1:0"\n[listen]\naddress = "{address}"\n'
            f'[store]\npath = "{folder}/store"\n[accounting]\ndatabase = "none"\n'
        )
        completed = longshare("serve", "--config", str(folder / "longshare.toml"))
    assert completed.returncode == 1  # systemd does not restart a service that ends with 2
    assert f"longshare serve: listen.address: cannot listen on {address}; " in completed.stderr


def test_a_source_is_kept_if_the_trace_is_forgotten(folder: Path) -> None:
    jobs = folder / "jobs.csv"
    jobs.write_text(CSV)
    text = message("trace convert {file} jobs.csv --from csv", str(jobs))
    assert text == (
        "longshare: jobs.csv exists and is not a trace, so it is kept; name another file for the "
        "trace"
    )
    assert jobs.read_text() == CSV


@pytest.mark.parametrize(
    "command",
    [
        "trace convert jobs.csv out.parquet --from csv --left-out jobs.csv",
        "trace convert jobs.csv out.parquet --from csv --left-out ./u.csv --users u.csv",
        "compare trace.parquet --policies drf,tsf --out trace.parquet",
        "compare trace.parquet --policies drf,tsf --by-user trace.parquet",
        "lies trace.parquet --policy drf --out trace.parquet",
        "simulate trace.parquet --policy drf --html trace.parquet",
        "replay jobs.csv --html jobs.csv",
    ],
)
def test_an_output_that_is_an_input_is_refused(folder: Path, command: str) -> None:
    (folder / "u.csv").write_text("user,weight\nann,2\n")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    completed = CliRunner().invoke(app, command.split())
    assert completed.exit_code == 2
    assert "is an input of this command" in " ".join(completed.stderr.replace("│", " ").split())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    "command",
    [
        "trace convert jobs.csv out.parquet --from csv --left-out notes.csv",
        "compare trace.parquet --policies drf,tsf --by-user notes.csv",
        "compare trace.parquet --policies drf,tsf --out notes.csv",
        "lies trace.parquet --policy drf --out notes.csv",
        "simulate trace.parquet --policy drf --html notes.csv",
        "replay jobs.csv --html notes.csv",
    ],
)
def test_an_output_replaces_no_file_with_other_content(folder: Path, command: str) -> None:
    (folder / "notes.csv").write_text(CSV)
    assert "notes.csv exists and has other content, so it is kept" in message(command, "")
    assert (folder / "notes.csv").read_text() == CSV


@pytest.mark.parametrize("arguments", [["--version"], ["trace", "--help"]])
def test_a_full_disk_at_the_standard_output_is_named(arguments: list[str]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        completed = subprocess.run(
            [sys.executable, "-m", "allocator.cli", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert completed.returncode == 2
    assert completed.stderr == "longshare: standard output: No space left on device\n"


def test_a_closed_standard_output_is_no_error(folder: Path) -> None:
    command = f"exec {sys.executable} -m allocator.cli trace stats trace.parquet >&-"
    completed = subprocess.run(
        ["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (completed.returncode, completed.stderr) == (0, "")


@pytest.mark.parametrize(
    "command",
    [
        "trace convert jobs.csv out.parquet --from csv --left-out out.parquet",
        "compare trace.parquet --policies drf,tsf --out new.png --by-user ./new.png",
    ],
)
def test_two_outputs_of_one_name_are_refused(folder: Path, command: str) -> None:
    before = {path.name for path in folder.iterdir()}
    assert "is another output of this command; name another file" in message(command, "")
    assert {path.name for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("trace convert {file} missing/out.parquet --from csv", "missing/out.parquet"),
        ("trace convert {file} folder --from csv", "folder"),
        ("trace convert {file} - --from csv", "-"),
        ("trace generate google-month missing/out.parquet --tasks 100000", "missing/out.parquet"),
        ("simulate {file} --policy drf --html missing/page.html", "missing/page.html"),
        ("simulate {file} --policy drf --out jobs.csv", "jobs.csv"),
        ("compare {file} --policies drf,tsf --out folder", "folder"),
        ("compare {file} --policies drf,tsf --out figure.txt", "figure.txt"),
        ("compare {file} --policies drf,tsf --by-user folder", "folder"),
        ("lies {file} --policy drf --out missing/lies.csv", "missing/lies.csv"),
        ("report {file} --out jobs.csv", "jobs.csv"),
        ("games gains --out jobs.csv", "jobs.csv"),
        ("games worst --policy sdrf --out jobs.csv", "jobs.csv"),
        ("games search --policy sdrf --property envy-freeness --out folder", "folder"),
        ("properties --policy drf --property envy-freeness --out jobs.csv", "jobs.csv"),
        ("figure sdrf-1 --out jobs.csv", "jobs.csv"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    folder: Path, command: str, output: str
) -> None:
    (folder / "folder").mkdir()
    before = {path.name for path in folder.rglob("*")}
    # The input does not exist either, so a command that began its work would name the input.
    text = message(command, "input.x")
    assert output in text
    assert "input.x" not in text
    assert not is_raw(text), text
    assert {path.name for path in folder.rglob("*")} == before


@pytest.mark.parametrize("source", ["-", "trace.parquet", "book.xlsx"])
def test_a_source_that_no_converter_can_read_is_named_with_a_remedy(
    folder: Path, source: str
) -> None:
    with zipfile.ZipFile(folder / "book.xlsx", "w") as book:
        book.writestr("[Content_Types].xml", "<Types/>")
        book.writestr("xl/workbook.xml", "<workbook/>")
    text = message("trace convert {file} out.parquet --from csv", source)
    assert text.startswith(f"longshare: {source} is a ")
    assert "no column" not in text
    assert not (folder / "out.parquet").exists()


def test_a_folder_as_trace_is_named_with_a_remedy(folder: Path) -> None:
    assert message("trace stats {file}", str(folder)) == (
        f"longshare: {folder}: Is a directory; name a file"
    )


@pytest.mark.parametrize("option", ["--resources", "--timezone"])
def test_an_empty_option_of_a_conversion_is_refused(option: str) -> None:
    command = ["trace", "convert", "jobs.csv", "out.parquet", "--from", "csv", option, ""]
    completed = CliRunner().invoke(app, command)
    assert completed.exit_code == 2
    assert f"Invalid value for {option}: it is empty" in completed.stderr


def test_not_a_number_is_named_rather_than_the_range_of_an_option() -> None:
    assert "nan is not a finite number" in message("shares --timeout nan", "")


def test_a_mark_of_the_byte_order_is_no_mistake_in_a_settings_file(folder: Path) -> None:
    user = '[[users]]\nname = "u"\ndemand = { cpus = 1 }\n'
    (folder / "problem.toml").write_text(PROBLEM + user, encoding="utf-8-sig")
    completed = CliRunner().invoke(app, ["optimum", "problem.toml", "--policy", "tsf"])
    assert completed.exit_code == 0, completed.stderr
    (folder / "service.toml").write_text('[listen]\naddress = "unix:///x"\n', encoding="utf-8-sig")
    assert "unix:///x" in CliRunner().invoke(app, ["shares", "--config", "service.toml"]).stderr


def test_commitments_that_a_policy_ignores_are_named(folder: Path) -> None:
    user = '[[users]]\nname = "u"\ndemand = { cpus = 1 }\ncommitment = 0.5\n'
    (folder / "problem.toml").write_text(PROBLEM + user)
    for policy, counts in (("drf", False), ("sdrf", True)):
        completed = CliRunner().invoke(app, ["optimum", "problem.toml", "--policy", policy])
        assert completed.exit_code == 0
        assert ("commitments have no effect under" in completed.stderr) is not counts


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("sweep study.toml --jobs 0", "give 1 or more, or -1"),
        ("sweep study.toml --scheduler h:1", "it needs --backend dask"),
        ("games worst --policy sdrf --alpha 0.5", "it is for dynamic-drf and dynamic-mmf"),
        ("experiment run drf-baseline --out jobs.csv", "jobs.csv is a file; name a folder"),
        ("experiment run tsf-micro --out jobs.csv/x", "jobs.csv/x: Not a directory"),
        ("experiment run drf-baseline --master host", "'host' is not HOST:PORT"),
        ("local-mesos --resources {file}", "an agent without resources can run no task"),
    ],
)
def test_an_option_without_effect_or_sense_is_refused(command: str, reason: str) -> None:
    words = [word.format(file="") for word in command.split()]
    completed = CliRunner().invoke(app, words, env={"COLUMNS": "300"})
    assert completed.exit_code == 2
    assert reason in completed.stderr


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"LONGSHARE_KEY": "jobs.csv"}, "need LONGSHARE_CA, the service's authority"),
        ({"LONGSHARE_CA": "jobs.csv"}, "jobs.csv holds no certificate in PEM format; correct"),
    ],
)
def test_files_of_tls_that_cannot_serve_are_named(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], reason: str
) -> None:
    for name, file in variables.items():
        monkeypatch.setenv(name, file)
    assert reason in message("shares", "")


def test_a_host_that_does_not_exist_is_not_taken_for_a_used_port() -> None:
    completed = CliRunner().invoke(app, ["local-mesos", "--host", "999.1.1.1", "--agents", "0"])
    assert completed.exit_code == 1
    assert completed.stderr.endswith("; correct --host or --port\n")
