"""A running service shows task shares."""

from pathlib import Path

from typer.testing import CliRunner

from allocator.cli import app
from allocator.contract import allocator_pb2 as contract
from tests.cluster.master_side import agent_call, framework_info, resources
from tests.service.served import Stream, service
from tests.service.show.test_metrics import scrape

SETTINGS = """
[policy]
name = "tsf"
[[users.declared]]
name = "nobody knows"
[offers.demands]
analysis = "cpus:1;mem:2048"
"""


def test_metrics_and_shares_show_the_task_share(tmp_path: Path) -> None:
    held = {"f1": resources("cpus:1;mem:2048", "a")}
    with service(tmp_path, SETTINGS) as running:
        stream = Stream(running.address)
        stream.open(
            agents=[agent_call("s1", "cpus:4;mem:4096", held), agent_call("s2", "cpus:3;mem:9000")],
            frameworks=[
                contract.AddFramework(
                    framework_id="f1", info=framework_info("f1", "a", name="analysis"), active=False
                )
            ],
        )
        seen = scrape(running)
        shown = CliRunner().invoke(app, ["shares", "--address", running.address])
        stream.close()
        assert running.stop() == 0
    assert seen["longshare_user_task_share_ratio", "a"] == 1 / (2 + 3)
    assert ("longshare_user_task_share_ratio", "nobody knows") not in seen
    assert seen["longshare_user_priority", "a"] == 1 / (2 + 3)
    header, *rows = shown.stdout.splitlines()
    assert "task" in header
    assert [row for row in rows if " a " in row and "20.0%" in row]
