"""The command `longshare incentives`."""

import json
from pathlib import Path

from tests.forks import longshare

PROFILE = """
[[users]]
name = "alice"
[[users]]
name = "bob"
[[users]]
name = "carol"

[[epochs]]
capacity = 1
demands = { alice = 1, bob = 1 }
[[epochs]]
capacity = 1
demands = { alice = 1, carol = 1 }
[[epochs]]
capacity = 1
demands = { alice = 1, bob = 1 }
"""


def test_incentives_show_the_gain_and_the_best_lie_of_each_user(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(PROFILE)
    completed = longshare("incentives", str(tmp_path / "p.toml"), "--json")
    assert completed.returncode == 0, completed.stderr
    alice = json.loads(completed.stdout)["users"]["alice"]
    assert alice == {
        "truthful": 1.125,
        "best": 1.25,
        "ratio": 10 / 9,
        "bound": 1.5,
        "reports": {"alice": [0.0, 1.0, 1.0]},
    }
    table = longshare("incentives", str(tmp_path / "p.toml"), "--user", "alice").stdout
    assert "1.1111" in table
    assert "bob" not in table


def test_an_unknown_user_is_refused_and_an_invalid_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(PROFILE)
    completed = longshare("incentives", str(tmp_path / "p.toml"), "--user", "eve")
    assert completed.returncode == 1
    assert "there are: alice, bob, carol" in completed.stderr
    (tmp_path / "p.toml").write_text(PROFILE.replace("carol = 1", "eve = 1"))
    completed = longshare("incentives", str(tmp_path / "p.toml"))
    assert completed.returncode == 2
    assert "epochs[1].demands: user 'eve' is unknown" in completed.stderr
