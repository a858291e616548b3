"""A service with a value in every metric, and a Prometheus that scrapes the service."""

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from allocator.contract import allocator_pb2 as contract
from allocator.contract import mesos_pb2 as mesos
from frameworks.harness.ports import free_port
from tests.cluster.master_side import SECOND, agent_call, framework_info, resources
from tests.service.served import Service, Stream, answers, service, wait_for

DEPLOY = Path(__file__).parents[2] / "deploy"
SETTINGS = """
[policy]
name = "sdrf"
delta = 0.99
[[users.declared]]
name = "owing"
commitment = 0.9
[[users.declared]]
name = "holding"
[offers.demands]
"f3 of the tests" = "cpus:100"
[accounting]
every = 60
"""


def promtool() -> str | None:
    return shutil.which("promtool")


def prometheus() -> str | None:
    return shutil.which("prometheus")


@contextmanager
def busy_service(
    folder: Path, metrics: str = "127.0.0.1:0", *, hopeless: bool = False
) -> Iterator[tuple[Service, Stream]]:
    """Run a service with an allocation, a commitment, a quota, filters, and a planned overtaking.

    Args:
        folder: The folder for its files.
        metrics: The address of its HTTP port.
        hopeless: Whether to add a user that no agent could serve.
    """
    roles = [("f1", "holding"), ("f2", "owing"), *([("f3", "huge")] if hopeless else [])]
    guarantee = mesos.QuotaInfo(role="holding")
    guarantee.guarantee.append(mesos.Resource.FromString(resources("cpus:1")[0]))
    arguments = ["--record", str(folder / "events.log")]
    with service(folder, SETTINGS, arguments=arguments, metrics=metrics) as running:
        stream = Stream(running.address)
        stream.open(
            agents=[
                agent_call("s1", "cpus:4;mem:4096", {"f1": resources("cpus:3;mem:3072", "holding")})
            ],
            frameworks=[
                contract.AddFramework(
                    framework_id=framework, info=framework_info(framework, role), active=True
                )
                for framework, role in roles
            ],
            quotas=[contract.SetQuota(role="holding", info=guarantee.SerializeToString())],
        )
        stream.now_ns += 5 * SECOND
        stream.tell(
            recover_resources=contract.RecoverResources(
                framework_id="f1",
                agent_id="s1",
                resources=resources("mem:512", "holding"),
                filters=mesos.Filters(refuse_seconds=1000).SerializeToString(),
            )
        )
        stream.now_ns += 5 * SECOND
        stream.tell(tick=contract.Tick())
        yield running, stream
        stream.close()


class Prometheus:
    """A client of Prometheus that queries as Grafana does."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}/api/v1"

    def get(self, path: str, **query: str) -> Any:  # noqa: ANN401 - as the API answers
        url = f"{self._base}/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def samples(self, expression: str) -> list[dict[str, Any]]:
        samples: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return samples

    def scraped(self) -> float:
        """Return when something was scraped last; 0 if nothing was."""
        samples = self.samples("max(timestamp(up))")
        return float(samples[0]["value"][1]) if samples else 0.0


@contextmanager
def scraping(folder: Path, target: str) -> Iterator[Prometheus]:
    """Run Prometheus with the shipped configuration, but with shorter intervals and this target."""
    program = prometheus()
    assert program is not None
    home = folder / "prometheus"
    shutil.copytree(DEPLOY / "prometheus", home)
    config = home / "prometheus.yml"
    config.write_text(config.read_text().replace("15s", "1s"))
    for targets in (home / "targets").glob("*/*.yml"):
        targets.unlink()
    (home / "targets" / "longshare" / "main.yml").write_text(
        f"- targets: ['{target}']\n  labels: {{cluster: tested}}\n"
    )
    port = free_port()
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}/api/v1/status/buildinfo"))
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait()
