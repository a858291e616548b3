"""`longshare slurm serve` on a real Slurm: displays, orders, accounts, and a restart."""

import json
import os
import re
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from allocator.cli.connection import Connection
from allocator.contract import admin_pb2 as admin
from allocator.contract import operator_pb2 as operator
from frameworks.local_slurm.cluster import LocalSlurm
from frameworks.local_slurm.configuration import NodeGroup, SlurmSettings
from tests.forks import Longshare
from tests.slurm.real import reason_to_skip

PATIENCE = 90.0
JOB = ("--cpus-per-task=10", "--mem=1000", "--array=0-29")
SCRIPT = "sleep $((5 + SLURM_ARRAY_TASK_ID % 4))"

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip())),
]


class SlurmService:
    """A service for one Slurm in its own process."""

    def __init__(self, folder: Path, slurm: LocalSlurm) -> None:
        self.folder, self.slurm = folder, slurm
        self.address = f"unix://{folder}/operators.sock"
        self.log = folder / "service.log"

    @contextmanager
    def running(self, *, dry_run: bool) -> Iterator[Connection]:
        config = self.folder / "longshare.toml"
        config.write_text(
            f"""
            [policy]
            name = "sdrf"
            half_life = "30s"
            [[shadow]]
            name = "drf"
            [slurm]
            dry_run = {str(dry_run).lower()}
            every = 0.5
            nodes_every = 1
            lag = 10
            conf = "{self.slurm.environment["SLURM_CONF"]}"
            [listen]
            address = "{self.address}"
            [metrics]
            address = "127.0.0.1:0"
            [store]
            path = "{self.folder / "commitments.sqlite"}"
            [accounting]
            every = 1
            [log]
            format = "json"
            """
        )
        self.log.write_bytes(b"")
        environment = {**os.environ, "PATH": self.slurm.environment["PATH"]}
        with self.log.open("wb") as log:
            process = Longshare(
                ["slurm", "serve", "--config", str(config)], stderr=log, env=environment
            )
        try:
            self.wait_for(lambda: "slurmctld answers" in self.log.read_text(), process)
            yield Connection(self.address, None, 20.0)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0, self.log.read_text()

    def wait_for(self, holds: Callable[[], bool], process: Longshare | None = None) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert process is None or process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.2)

    def page(self, path: str) -> str:
        match = re.search(r'"(http://[^"]+)/metrics"', self.log.read_text())
        assert match is not None
        with urllib.request.urlopen(match[1] + path, timeout=20) as answer:
            text: str = answer.read().decode()
        return text

    def factors(self) -> dict[str, str]:
        lines = self.slurm.run("sprio", "--noheader", "--format=%i|%S").split()
        return {job: factor for job, _, factor in (line.partition("|") for line in lines)}


def user(reply: admin.SharesReply, name: str) -> admin.UserShare:
    return next(share for share in reply.users if share.user == name)


def test_a_real_slurm_is_followed_ordered_and_remembered(tmp_path: Path) -> None:
    with LocalSlurm(tmp_path / "slurm") as slurm:
        service = SlurmService(tmp_path, slurm)

        with service.running(dry_run=True) as operators:
            slurm.submit(*JOB, user="games", script=SCRIPT)
            service.wait_for(
                lambda: any(share.dominant_share > 0.9 for share in operators.shares().users)
            )
            slurm.submit(*JOB, user="man", script=SCRIPT)
            held = slurm.submit("--cpus-per-task=10", "--hold", user="news")
            service.wait_for(lambda: len(operators.shares().users) == 3)
            cluster = operators.shares().cluster
            assert cluster.connected
            assert cluster.capacity == {"cpus": 160.0, "mem": 240_000.0}
            service.wait_for(lambda: "longshare_slurm_ordered_jobs 0.0" not in page_of(service))
            assert set(service.factors().values()) <= {"0"}, "a dry run changes nothing"

        with service.running(dry_run=False) as operators:
            service.wait_for(lambda: any(int(factor) for factor in service.factors().values()))
            explanation = operators.explain("news")
            assert explanation.passed_over
            sentence = f"Its job {held} is pending: held; Slurm says JobHeldUser."
            assert sentence in explanation.words
            reply = operators.order(
                operator.Order(set_weight=operator.SetWeight(user="man", weight=3.0)), ["man"]
            )
            assert reply.stored
            assert reply.audited
            assert user(operators.shares(), "man").weight == 3.0
            service.wait_for(lambda: user(operators.shares(), "games").dominant_commitment > 0.05)
            status = json.loads(service.page("/api/status"))
            assert {entry["user"] for entry in status["users"]} == {"games", "man", "news"}
            assert status["words"]["applications"] == "jobs"
            assert [shadow["failure"] for shadow in status["shadows"]] == [""]
            service.wait_for(lambda: bool(json.loads(service.page("/api/status"))["offers"]))
            slurm.kill_controller()
            service.wait_for(lambda: not operators.shares().cluster.connected)
            assert "slurmctld has not answered for" in operators.explain("man").words[0]
            slurm.start_controller()
            service.wait_for(lambda: operators.shares().cluster.connected)
            owed = user(operators.shares(), "games").dominant_commitment
            began = time.time()

        with service.running(dry_run=True) as operators:
            games = user(operators.shares(), "games")
            elapsed = time.time() - began
            assert games.dominant_commitment > 0.5 * owed * 0.5 ** (elapsed / 30.0)
            assert user(operators.shares(), "man").weight == 3.0
            service.wait_for(
                lambda: bool(
                    operators.usage(0.0, time.time(), "user", ["games"]).rows
                    and operators.usage(0.0, time.time(), "user", ["games"])
                    .rows[0]
                    .resources["cpus"]
                    .held
                    > 0.0
                )
            )


def test_texts_of_users_reach_displays_as_printable_text(tmp_path: Path) -> None:
    settings = SlurmSettings(nodes=(NodeGroup("n", 2, 8, 2000),))
    with LocalSlurm(tmp_path / "slurm", settings) as slurm:
        service = SlurmService(tmp_path, slurm)
        forged = "x StartTime=1 SuspendTime=7 SecsPreSuspend=8"
        options = ("--nodes=2", "--ntasks=2", "--mem=10", f"--job-name={forged}")
        job = slurm.submit(*options, user="games", script="sleep 600")
        held = slurm.submit("--hold", "--account=\udcff|\n", user="man")
        with service.running(dry_run=True) as operators:
            service.wait_for(
                lambda: any(share.dominant_share == 0.125 for share in operators.shares().users)
            )
            slurm.run("scontrol", "update", f"jobid={job}", "numnodes=1")
            counted = 'longshare_slurm_rejected_records_total{source="scontrol"} 1.0'
            service.wait_for(lambda: counted in page_of(service))
            # The service counts a record some time before it writes the line of the log.
            words = f"scontrol show job {job}: the field JobId or SuspendTime has several values"
            service.wait_for(lambda: words in service.log.read_text())
            (reason,) = operators.explain("man").reasons
            assert (reason.framework, reason.role) == (str(held), "%FF|%0A")
            assert "longshare_slurm_failed_readings_total 0.0" in page_of(service)


def page_of(service: SlurmService) -> str:
    return service.page("/metrics")
