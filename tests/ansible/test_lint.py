"""Playbooks and roles follow the conventions of published collections."""

import subprocess
from pathlib import Path

import pytest

from tests.ansible.emulated import ANSIBLE, environment, tools


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.timeout(600)  # takes a core for twenty seconds
def test_ansible_lint_has_no_findings_in_the_production_profile(tmp_path: Path) -> None:
    completed = subprocess.run(
        [tools() / "ansible-lint", "--offline", "--nocolor", "--strict", "--profile", "production"],
        cwd=ANSIBLE,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
