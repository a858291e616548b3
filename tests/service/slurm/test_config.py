"""The configuration of the service for Slurm has the shared sections, and none for masters."""

from pathlib import Path

import pytest

from allocator.service.config import ConfigError
from allocator.service.slurm.config import SlurmConfig, load


def loaded(folder: Path, text: str) -> SlurmConfig:
    path = folder / "longshare.toml"
    path.write_text(text)
    return load(path)


def test_without_a_configuration_nothing_is_written_to_slurm(tmp_path: Path) -> None:
    config = loaded(tmp_path, "")
    assert config.bridge_settings().dry_run
    assert config.policy.name == "sdrf"


def test_the_packaged_configuration_is_a_dry_run_that_only_its_own_user_may_control() -> None:
    config = load(Path(__file__).parents[3] / "docs/longshare-slurm.toml")
    assert config.bridge_settings().dry_run
    assert config.listen.address.startswith("unix:")


def test_the_command_line_can_forbid_writing_and_never_allow_it(tmp_path: Path) -> None:
    config = loaded(tmp_path, "[slurm]\ndry_run = false")
    assert not config.bridge_settings().dry_run
    assert config.bridge_settings(dry_run=True).dry_run


def test_excluded_resources_have_the_names_of_a_jobs_resources(tmp_path: Path) -> None:
    text = '[slurm]\nexcluded = ["cpus", "mem", "gpus", "gres/gpus", "gres/shard"]'
    assert len(loaded(tmp_path, text).bridge_settings().state.excluded) == 5


def test_users_of_slurm_are_declared_with_weights(tmp_path: Path) -> None:
    text = '[users]\nkey = "tree"\n[[users.declared]]\nname = "physics/ann"\nweight = 3.0'
    settings = loaded(tmp_path, text).bridge_settings().state
    assert settings.user_key == "tree"
    assert [(user.name, user.weight) for user in settings.declared] == [("physics/ann", 3.0)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[users]\nkey = "role"', "users.key"),
        ("[offers]\nwhole_from = 1", "offers: this section is for `longshare serve`, which works"),
        ("[listen]\nvirtual_clocks = true", "listen.virtual_clocks: a service for Slurm has no"),
        ('[policy]\nname = "cdrf"', "choose tsf or stsf"),
        ('[policy]\nname = "tsf"\n[[shadow]]\nname = "drf"', "for both, or for none"),
        ('[policy]\nname = "per-machine-drf"', "Slurm has one order"),
        ('[[users.declared]]\nname = "a"\n[[users.declared]]\nname = "a"', "declared twice: a"),
        ("[slurm]\nevery = 0", "slurm.every"),
        ('[slurm]\nexcluded = ["memory"]', "'memory' is not a resource of a job; write cpus, mem"),
        ('[slurm]\nexcluded = ["mem", "gres/gpu"]', "'gres/gpu' is not a resource"),
        ('[slurm]\nexcluded = ["gres/shard:a100"]', "'gres/shard:a100' is not a resource"),
        ('[[users.declared]]\nname = "physics/ann/"', "'physics/ann/' has an empty part"),
        ('[[users.declared]]\nname = "physics//ann"', "'physics//ann' has an empty part"),
    ],
)
def test_settings_that_slurm_has_no_use_for_are_refused(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        loaded(tmp_path, text)


def test_the_store_may_not_overwrite_slurms_configuration(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    config = loaded(tmp_path, f'[slurm]\nconf = "{conf}"\n[store]\npath = "{conf}"')
    with pytest.raises(ConfigError, match=r"slurm\.conf"):
        config.require_files(tmp_path / "longshare.toml")
