"""The repository contains everything that a release needs, and nothing forbidden."""

import json
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_pin_third_party_actions_by_commit_and_start_without_permissions(
    workflow: Path,
) -> None:
    text = workflow.read_text()
    uses = re.findall(r"uses: (.*)", text)
    assert uses
    assert [use for use in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", use)] == []
    assert re.search(r"^permissions: \{\}$", text, re.MULTILINE)
    assert "secrets." not in text


def test_make_targets_of_workflows_exist() -> None:
    made = {
        name
        for workflow in WORKFLOWS
        for name in re.findall(r"make ([a-z-]+)", workflow.read_text())
    }
    assert "release-check" in made
    for target in made:
        planned = subprocess.run(
            ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert planned.returncode == 0, planned.stderr


def test_a_release_waits_for_compiled_wheels_of_each_supported_python() -> None:
    jobs = (ROOT / ".github" / "workflows" / "release.yml").read_text().split("\n\n")
    (compile_,) = (job for job in jobs if job.startswith("  compile:"))
    assert "run: make compiled-wheels" in compile_
    assert set(re.findall(r"machine: (\w+)", compile_)) == {"x86_64", "aarch64"}
    (publish,) = (job for job in jobs if job.startswith("  publish:"))
    assert "needs: [check, compile]" in publish
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    versions = [
        version.rpartition(" ")[2]
        for version in settings["project"]["classifiers"]
        if re.search(r":: 3\.\d+$", version)
    ]
    wheels = settings["tool"]["cibuildwheel"]
    assert wheels["build"] == [f"cp{version.replace('.', '')}-manylinux_*" for version in versions]
    assert wheels["environment"] == {"LONGSHARE_COMPILED": "1"}


def test_modules_that_stay_interpreted_exist() -> None:
    listed = subprocess.run(
        [sys.executable, "-c", "import setup, json; print(json.dumps(setup.INTERPRETED))"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    interpreted = json.loads(listed.stdout)
    assert interpreted
    assert [path for path in interpreted if not (ROOT / path).exists()] == []


def test_the_changelog_begins_with_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    newest = re.search(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest
    unreleased, released = rf"Unreleased \({version}\)", rf"{version} \(\d{{4}}-\d\d-\d\d\)"
    assert re.fullmatch(f"{unreleased}|{released}", newest[1])


def test_the_release_check_names_the_heading_that_an_unreleased_changelog_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = runpy.run_path(str(ROOT / "deploy" / "release" / "check.py"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    version = check["project"]()["version"]
    monkeypatch.setitem(check["version"].__globals__, "ROOT", tmp_path)
    for heading in (f"Unreleased ({version})", "0.1.0 (2020-01-01)"):
        (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n\n* One.\n")
        with pytest.raises(check["Missing"]) as missing:
            check["version"]()
        assert f'begins with "{heading}"' in str(missing.value)
        assert f'change this heading to "{version} (YYYY-MM-DD)"' in str(missing.value)
