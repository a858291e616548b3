"""Each setting that keeps Slurm from following the order is found."""

from collections.abc import Iterable, Mapping

import pytest

from allocator.slurm.checks import SettingFinding, check_associations, check_configuration
from allocator.slurm.rows import ShapeError
from allocator.slurm.users import Associations, read_associations

GOOD = {
    "PriorityType": "priority/multifactor",
    "SchedulerType": "sched/backfill",
    "PrioritySiteFactorPlugin": "(null)",
    "PriorityWeightAge": "0",
    "PriorityFlags": "",
    "MinJobAge": "300 sec",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStorageEnforce": "associations,limits",
    "AccountingStorageTRES": "cpu,mem,energy,node,billing,gres/gpu",
    "GresTypes": "gpu",
}

PHYS = (("phys", "", "root", "3"),)
"""The account phys, its user, the account above, and its share."""


def check(
    partitions: str = "", *, rights: bool = True, changes: Mapping[str, str] = {}
) -> list[SettingFinding]:
    return check_configuration(GOOD | dict(changes), partitions, user_key="tree", rights=rights)


def test_a_good_configuration_has_no_findings() -> None:
    assert check() == []


@pytest.mark.parametrize(
    ("setting", "value", "kind"),
    [
        ("PriorityType", "priority/basic", "problem"),
        ("SchedulerType", "sched/builtin", "problem"),
        ("PriorityFlags", "INCR_ONLY", "problem"),
        ("PrioritySiteFactorPlugin", "site_factor/own", "problem"),
        ("SchedulerParameters", "bf_interval=30,enable_user_top", "problem"),
        ("PriorityWeightAge", "900000", "warning"),
        ("PriorityWeightAge", "1000", "note"),
        ("PriorityWeightTRES", "CPU=1000", "warning"),
        ("MinJobAge", "5 sec", "warning"),
        ("AccountingStorageEnforce", "none", "warning"),
        ("AccountingStorageEnforce", "nosteps", "warning"),
        ("AccountingStorageTRES", "cpu,mem", "warning"),
        ("PreemptType", "preempt/qos", "note"),
    ],
)
def test_a_harmful_setting_is_named_with_its_value(setting: str, value: str, kind: str) -> None:
    (finding,) = check(changes={setting: value})
    assert finding.kind == kind
    assert finding.setting.startswith(f"{setting}=")
    assert finding.advice.endswith(".")


@pytest.mark.parametrize(
    ("version", "parameters", "storage", "setting"),
    [
        ("22.05.8", "max_submit_line_size=1000", "slurmdbd", "SLURM_VERSION=22.05.8"),
        ("23.02.7", "", "slurmdbd", ""),
        ("23.11.0", "bf_interval=30", "slurmdbd", "max_submit_line_size=1048576"),
        ("24.11.5", "", "none", ""),
        ("24.11.5", "a=1,Max_Submit_Line_Size=65536", "slurmdbd", ""),
        ("26.05.5", "max_submit_line_size=65537", "slurmdbd", "max_submit_line_size=65537"),
        ("", "", "slurmdbd", ""),
    ],
)
def test_long_job_commands_are_noted_where_they_make_readings_slow(
    version: str, parameters: str, storage: str, setting: str
) -> None:
    changes = {"SLURM_VERSION": version, "SchedulerParameters": parameters}
    changes["AccountingStorageType"] = f"accounting_storage/{storage}"
    notes = [finding.setting for finding in check(changes=changes) if finding.kind == "note"]
    assert notes == ([setting] if setting else [])


def test_without_records_and_rights_both_are_told_problems_first() -> None:
    findings = check(rights=False, changes={"AccountingStorageType": "accounting_storage/none"})
    assert [finding.kind for finding in findings] == ["problem", "warning", "warning"]
    assert findings[0].setting == "AdminLevel"


def test_records_that_slurmdbd_lacks_are_told() -> None:
    (finding,) = check_configuration(GOOD, "", user_key="tree", rights=True, queued=7)
    assert (finding.kind, finding.setting) == ("warning", "DBD Agent queue size=7")


def test_associations_that_cannot_be_read_are_told() -> None:
    (finding,) = check_associations(association_rows([("a" * 256, "", "root", "3"), *PHYS]))
    assert (finding.kind, finding.setting) == ("warning", "sacctmgr show associations")
    assert "sacctmgr cut names of association 2" in finding.consequence
    (finding,) = check_associations(b"7||phys|4|root\n")
    assert "sacctmgr printed no columns" in finding.consequence
    assert not check_associations(association_rows(PHYS))


def test_partitions_of_different_tiers_are_told() -> None:
    partitions = (
        "PartitionName=a Nodes=n1 PriorityTier=1 State=UP\n"
        "PartitionName=b Nodes=n1 PriorityTier=5 State=UP\n"
    )
    (finding,) = check(partitions)
    assert finding.setting == "PriorityTier (a: 1, b: 5)"


def rows(text: str) -> bytes:
    """Return rows as sacctmgr prints them.

    Args:
        text: For each association a line: account, user, account above, and share.
    """
    split = [row.split("|") for row in text.splitlines()]
    return association_rows(
        [(account, user, above, share) for account, user, above, share in split]
    )


def association_rows(rows: Iterable[tuple[str, str, str, str]]) -> bytes:
    """Return rows as sacctmgr prints them, of accounts, users, accounts above, and shares.

    An association of `root` precedes them. A user's association is below its account.
    """
    associations = [("root", "", "", "1"), *rows]
    numbers = {
        account: number for number, (account, user, _, _) in enumerate(associations, 1) if not user
    }
    printed = b""
    for number, (account, user, above, share) in enumerate(associations, 1):
        parent = numbers.get(account if user else above, 99 if above else 0)
        for value, width in (
            *((str(number), 12), (str(parent), 12), (share, 12)),
            *((user, -256), (account, -256), (account, 256)),
        ):
            name = value.encode(errors="surrogateescape")
            if len(name) > abs(width):
                name = name[: abs(width) - 1] + b"+"
            padding = b" " * (abs(width) - len(name))
            printed += (padding + name if width > 0 else name + padding) + b" "
        printed += b"\n"
    return printed


def test_associations_form_a_tree_with_shares() -> None:
    text = "root|root||1\nphys||root|3\nlab||phys|2\nlab|ann||5\n"
    tree = read_associations(rows(text))
    assert tree.path("lab") == ("phys", "lab")
    assert tree.weights("tree") == {
        ("root", "root"): 1.0,
        ("phys",): 3.0,
        ("phys", "lab"): 2.0,
        ("phys", "lab", "ann"): 5.0,
    }
    assert tree.weights("account") == {("phys",): 3.0, ("phys", "lab"): 2.0}
    assert Associations().path("") == ("(no account)",)
    with pytest.raises(ShapeError, match="the share 'x' is not a number"):
        read_associations(rows("phys||root|x"))


def test_an_association_without_shares_has_the_least_weight() -> None:
    tree = read_associations(rows("phys||root|0\nphys|ann||0\nphys|bob||parent\n"))
    assert tree.weights("tree") == {("phys",): 1e-6, ("phys", "ann"): 1e-6}


def test_shares_of_a_user_add_up_over_partitions_and_an_account_may_have_a_users_name() -> None:
    text = "phys||root|3\nbob||phys|2\nphys|bob||4\nphys|bob||1\nbob|bob||6\n"
    tree = read_associations(rows(text))
    assert tree.weights("tree") == {
        ("phys",): 3.0,
        ("phys", "bob"): 2.0,
        ("phys", "bob (user)"): 5.0,
        ("phys", "bob", "bob"): 6.0,
    }


def test_partitions_in_which_users_own_whole_nodes_are_told() -> None:
    partitions = (
        "PartitionName=a Nodes=n1 ExclusiveUser=NO PriorityTier=1 State=UP\n"
        "PartitionName=b Nodes=n2 ExclusiveUser=YES PriorityTier=1 State=UP\n"
    )
    (finding,) = check(partitions)
    assert (finding.kind, finding.setting) == ("note", "ExclusiveUser=YES (b)")
