"""An emulated EC2: moto's server in a process, and the playbooks run against the server."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from frameworks.harness.ports import free_port
from tests.service.served import answers, wait_for

ANSIBLE = Path(__file__).parents[2] / "ansible"
REGION = "us-east-1"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE tests"
ASK = """
import boto3, json, sys
ec2 = boto3.client("ec2")
answers = [getattr(ec2, call)(**parameters) for call, parameters in json.load(sys.stdin)]
json.dump(answers, sys.stdout, default=str)
"""
KINDS = {
    "instances": ("instances", "Reservations", "ReservationId"),
    "networks": ("vpcs", "Vpcs", "VpcId"),
    "subnets": ("subnets", "Subnets", "SubnetId"),
    "gateways": ("internet_gateways", "InternetGateways", "InternetGatewayId"),
    "routes": ("route_tables", "RouteTables", "RouteTableId"),
    "groups": ("security_groups", "SecurityGroups", "GroupId"),
    "keys": ("key_pairs", "KeyPairs", "KeyName"),
    "templates": ("launch_templates", "LaunchTemplates", "LaunchTemplateId"),
    "volumes": ("volumes", "Volumes", "VolumeId"),
    "interfaces": ("network_interfaces", "NetworkInterfaces", "NetworkInterfaceId"),
    "addresses": ("addresses", "Addresses", "AllocationId"),
    "spot requests": (
        "spot_instance_requests",
        "SpotInstanceRequests",
        "SpotInstanceRequestId",
    ),
}
"""For each kind of resource the call of EC2, the list in its reply, and the key of a name."""


def tools() -> Path:
    """Return the programs that `make operations` installs; skip the test without them."""
    home = Path(os.environ.get("LONGSHARE_OPERATIONS", f"{sys.prefix}-operations")).absolute()
    if not (home / "bin" / "ansible-playbook").exists():
        pytest.skip(f"no Ansible in {home}, so nothing is played; `make operations` installs it")
    return home / "bin"


def environment(home: Path) -> dict[str, str]:
    """Return a playbook's environment, without the account settings and secrets of this user."""
    return {
        "PATH": f"{tools()}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "ANSIBLE_HOME": str(home / "ansible"),
        "ANSIBLE_LOCAL_TEMP": str(home / "tmp"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
        "LANG": "C.UTF-8",
    }


@dataclass(frozen=True)
class Played:
    """The result of a playbook's run."""

    succeeded: bool
    output: str

    def count(self, counter: str) -> int:
        """Return how many results of a kind (`changed`, `ok`) all hosts had."""
        recap = self.output.partition("PLAY RECAP")[2]
        return sum(int(number) for number in re.findall(rf"\b{counter}=(\d+)", recap))


def play(playbook: str, *arguments: str, env: dict[str, str]) -> Played:
    """Run a playbook with ansible.cfg of the checkout."""
    completed = subprocess.run(
        [
            tools() / "ansible-playbook",
            ANSIBLE / "playbooks" / playbook,
            *arguments,
        ],
        cwd=ANSIBLE,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return Played(completed.returncode == 0, completed.stdout + completed.stderr)


class Account:
    """An account at the emulated EC2."""

    def __init__(self, url: str, home: Path) -> None:
        self._env = environment(home) | {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
        }

    def _ask(self, *questions: tuple[str, Mapping[str, object]]) -> list[dict[str, Any]]:
        """Ask EC2's API: calls, each with its parameters."""
        completed = subprocess.run(
            [tools() / "python", "-c", ASK],
            env=self._env,
            input=json.dumps(questions),
            capture_output=True,
            text=True,
            check=True,
        )
        answers: list[dict[str, Any]] = json.loads(completed.stdout)
        return answers

    @cached_property
    def image(self) -> str:
        """The id of an image that can be started."""
        image: str = self._ask(("describe_images", {}))[0]["Images"][0]["ImageId"]
        return image

    def play(self, playbook: str, cluster: str, *arguments: str, **settings: object) -> Played:
        """Run a playbook for a cluster, with some image and a key."""
        given = {
            "cluster_name": cluster,
            "cluster_admin_cidr": "203.0.113.7/32",
            "cluster_public_key": KEY,
            "cluster_image": self.image,
        } | settings
        return play(playbook, *arguments, "-e", json.dumps(given), env=self._of(cluster))

    def inventory(self, cluster: str) -> dict[str, Any]:
        """Return the hosts of a cluster as the playbooks see them."""
        completed = subprocess.run(
            [tools() / "ansible-inventory", "--list"],
            cwd=ANSIBLE,
            env=self._of(cluster),
            capture_output=True,
            text=True,
            check=True,
        )
        # Replies of an API are marked as untrusted for templates.
        known: dict[str, Any] = json.loads(
            completed.stdout, object_hook=lambda read: read.get("__ansible_unsafe", read)
        )
        return known

    def value(self, cluster: str, variable: str) -> dict[str, str]:
        """Return the value of a variable of the role `mesos_agent`, by agent."""
        message = json.dumps({"msg": f"{{{{ inventory_hostname }}}} has {{{{ {variable} }}}}"})
        completed = subprocess.run(
            [
                *(tools() / "ansible", "mesos_agent", "-m", "ansible.builtin.debug", "-a", message),
                *("-e", f"@{ANSIBLE}/roles/mesos_agent/defaults/main.yml"),
                *("-e", f"@{ANSIBLE}/inventory/group_vars/mesos_agent.yml"),
            ],
            cwd=ANSIBLE,
            env=self._of(cluster),
            capture_output=True,
            text=True,
            check=True,
        )
        return dict(re.findall(r"(i-\w+) has (\S+?)\W*$", completed.stdout, re.MULTILINE))

    def _of(self, cluster: str) -> dict[str, str]:
        return self._env | {"LONGSHARE_CLUSTER": cluster}

    def hosts(self, cluster: str) -> list[dict[str, Any]]:
        """Return the running instances of a cluster, with tags as a dictionary."""
        wanted = [
            {"Name": "tag:Cluster", "Values": [cluster]},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ]
        (instances,) = self._ask(("describe_instances", {"Filters": wanted}))
        return [
            instance | {"Tags": {tag["Key"]: tag["Value"] for tag in instance["Tags"]}}
            for reservation in instances["Reservations"]
            for instance in reservation["Instances"]
        ]

    def security_groups(self, cluster: str) -> list[dict[str, Any]]:
        """Return the security groups of a cluster."""
        wanted = [{"Name": "tag:Cluster", "Values": [cluster]}]
        (answer,) = self._ask(("describe_security_groups", {"Filters": wanted}))
        groups: list[dict[str, Any]] = answer["SecurityGroups"]
        return groups

    def holds(self) -> dict[str, set[str]]:
        """Return the names of all remaining resources, by kind."""
        alive = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopped"]}]
        answers = self._ask(
            *(
                (f"describe_{call}", {"Filters": alive} if kind == "instances" else {})
                for kind, (call, _, _) in KINDS.items()
            )
        )
        return {
            kind: {entry[name] for entry in answer[field]}
            for (kind, (_, field, name)), answer in zip(KINDS.items(), answers, strict=True)
        }


@contextmanager
def account(home: Path) -> Iterator[Account]:
    """Run the emulator for a single account with only the default resources."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"

    with (home / "moto.log").open("wb") as log:
        process = subprocess.Popen(
            [tools() / "moto_server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log
        )
    try:
        wait_for(lambda: answers(f"{url}/moto-api/data.json"))
        yield Account(url, home)
    finally:
        process.terminate()
        process.wait()
