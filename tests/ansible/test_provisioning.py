"""From an empty account to the papers' clusters and back, at an emulated EC2."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.ansible.emulated import Account, account

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def ec2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with account(tmp_path_factory.mktemp("ec2")) as emulated:
        yield emulated


def few(count: int = 1) -> list[dict[str, object]]:
    return [{"name": "agent", "count": count, "type": "a1.xlarge", "resources": "cpus:4"}]


@pytest.fixture(scope="module")
def paper(ec2: Account) -> str:
    """Provision the first paper's cluster; return its name."""
    first = ec2.play("provision.yml", "paper")
    assert first.succeeded, first.output
    assert first.count("changed") > 0
    return "paper"


def test_the_first_paper_s_41_hosts_exist_with_their_tags(ec2: Account, paper: str) -> None:
    hosts = ec2.hosts(paper)
    assert Counter((host["Tags"]["Role"], host["InstanceType"]) for host in hosts) == {
        ("mesos_master", "a1.xlarge"): 1,
        ("mesos_agent", "a1.xlarge"): 40,
    }
    assert {host["Tags"]["ManagedBy"] for host in hosts} == {"longshare"}
    assert {host["KeyName"] for host in hosts} == {paper}
    assert {host["MetadataOptions"]["HttpTokens"] for host in hosts} == {"required"}
    assert {group["GroupName"] for host in hosts for group in host["SecurityGroups"]} == {paper}


def test_a_second_run_changes_nothing(ec2: Account, paper: str) -> None:
    before = ec2.holds()
    second = ec2.play("provision.yml", paper)
    assert second.succeeded, second.output
    assert second.count("changed") == 0, second.output
    assert ec2.holds() == before


@pytest.mark.release
def test_the_second_paper_s_51_spot_hosts_have_agents_of_two_sizes_and_go_again(
    ec2: Account,
) -> None:
    before = ec2.holds()
    made = ec2.play("provision.yml", "mixed", "-e", "@inventory/cluster-50.yml", cluster_spot=True)
    assert made.succeeded, made.output
    assert Counter(
        (host["Tags"]["Role"], host["InstanceType"], host["Tags"]["Resources"])
        for host in ec2.hosts("mixed")
    ) == {
        ("mesos_master", "t2.medium", ""): 1,
        ("mesos_agent", "t2.medium", "cpus:1;mem:1024"): 25,
        ("mesos_agent", "t2.medium", "cpus:2;mem:1024"): 25,
    }
    assert len(ec2.holds()["templates"] - before["templates"]) == 1

    known = ec2.inventory("mixed")
    resources = Counter(
        known["_meta"]["hostvars"][host]["mesos_agent_resources"]
        for host in known["mesos_agent"]["hosts"]
    )
    assert resources == {"cpus:1;mem:1024": 25, "cpus:2;mem:1024": 25}
    assert len(known["mesos_master"]["hosts"]) == 1

    names = ec2.value("mixed", "mesos_agent_hostname")
    assert {
        names[host["InstanceId"]]: host["Tags"]["Resources"]
        for host in ec2.hosts("mixed")
        if host["Tags"]["Role"] == "mesos_agent"
    } == {
        f"agent-{number:02}": "cpus:1;mem:1024" if number <= 25 else "cpus:2;mem:1024"
        for number in range(1, 51)
    }

    gone = ec2.play("destroy.yml", "mixed")
    assert gone.succeeded, gone.output
    after = ec2.holds()
    # The emulator forgets the network, and so the interface, of a host from a template.
    del before["interfaces"], after["interfaces"]
    assert after == before


def test_the_site_playbook_first_checks_that_the_inventory_is_a_valid_cluster(
    ec2: Account, paper: str
) -> None:
    refused = ec2.play("site.yml", "nowhere")
    assert not refused.succeeded
    assert "the inventory has 0 and 0" in " ".join(refused.output.split())
    accepted = ec2.play("preflight.yml", paper)
    assert accepted.succeeded, accepted.output
    assert "One master and 40 agents" in accepted.output


def test_from_outside_only_the_administrator_reaches_a_host_and_only_by_ssh(
    ec2: Account, paper: str
) -> None:
    (group,) = ec2.security_groups(paper)
    from_outside = {
        (rule["FromPort"], rule["ToPort"], address_range["CidrIp"])
        for rule in group["IpPermissions"]
        for address_range in rule["IpRanges"]
    }
    assert from_outside == {(22, 22, "203.0.113.7/32")}
    within = {
        (rule["FromPort"], rule["ToPort"])
        for rule in group["IpPermissions"]
        for pair in rule["UserIdGroupPairs"]
        if pair["GroupId"] == group["GroupId"]
    }
    assert within == {(5050, 5051), (9100, 9100)}


@pytest.mark.release
def test_shrinking_and_deleting_a_cluster_leaves_no_resources_and_no_change_elsewhere(
    ec2: Account, paper: str
) -> None:
    before = ec2.holds()
    for count in (2, 1):
        made = ec2.play("provision.yml", "leaving", cluster_agents=few(count))
        assert made.succeeded, made.output
        roles = Counter(host["Tags"]["Role"] for host in ec2.hosts("leaving"))
        assert roles == {"mesos_master": 1, "mesos_agent": count}
        kinds = {kind for kind, names in ec2.holds().items() if names - before[kind]}
        assert kinds == {
            *("instances", "networks", "subnets", "gateways", "routes", "groups"),
            *("keys", "volumes", "interfaces"),
        }

    gone = ec2.play("destroy.yml", "leaving")
    assert gone.succeeded, gone.output
    assert ec2.holds() == before
    assert len(ec2.hosts(paper)) == 41
    repetition = ec2.play("destroy.yml", "leaving")
    assert repetition.succeeded, repetition.output
    assert repetition.count("changed") == 0


@pytest.mark.parametrize(
    "cidr", ["0.0.0.0/0", *(pytest.param(cidr, marks=pytest.mark.release) for cidr in ("", "::/0"))]
)
def test_networks_open_to_all_or_to_no_address_are_refused(ec2: Account, cidr: str) -> None:
    before = ec2.holds()
    refused = ec2.play("provision.yml", "open", cluster_admin_cidr=cidr)
    assert not refused.succeeded
    assert "cluster_admin_cidr" in refused.output
    assert ec2.holds() == before
