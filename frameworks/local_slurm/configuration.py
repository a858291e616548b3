"""Configuration files of a throw-away Slurm."""

import socket
from dataclasses import dataclass, field
from pathlib import Path

BACKUP = "backup"
"""Host name of the second slurmctld."""


@dataclass(frozen=True)
class NodeGroup:
    """Virtual nodes that are alike. All of them run on this machine."""

    name: str
    count: int
    cpus: int
    mem: int
    """Memory of a node in MiB."""
    gpus: str = ""
    """GPUs of a node as in `Gres`: `gpu:2`, or `gpu:a100:2` for a model. Empty: none."""
    threads: int = 1
    """CPUs of each core."""

    def names(self) -> list[str]:
        """Return the names of the nodes: the group's name and a number from 1."""
        return [f"{self.name}{number}" for number in range(1, self.count + 1)]


@dataclass(frozen=True)
class SlurmSettings:
    """Nodes and partitions of a throw-away Slurm, and settings that replace ours."""

    nodes: tuple[NodeGroup, ...] = (NodeGroup("n", 4, 40, 60_000),)
    partitions: dict[str, str] = field(default_factory=lambda: {"main": "ALL"})
    """Nodes of each partition, as in `Nodes`. The first partition is the default."""
    accounting: bool = False
    """Whether a `slurmdbd` with a database of its own keeps the accounting."""
    backup: bool = False
    """Whether a second slurmctld takes over if the first does not answer."""
    overrides: dict[str, str] = field(default_factory=dict)
    """Further settings of `slurm.conf` by name; they replace ours."""


def slurm_conf(settings: SlurmSettings, folder: Path, spool: Path, ports: dict[str, int]) -> str:
    """Return the content of `slurm.conf`.

    Args:
        settings: Nodes, partitions and other settings.
        folder: The Slurm's folder, with all its state.
        spool: Folder for sockets, and for the scripts of jobs. The users of the jobs must be able
            to read it.
        ports: Port numbers of the daemons: `slurmctld`, `slurmdbd`, and each node by name.
    """
    values = {
        "ClusterName": "trial",
        "SlurmctldHost": "localhost(127.0.0.1)",
        "SlurmctldPort": str(ports["slurmctld"]),
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={munge_socket(spool)}",
        "CredType": "cred/munge",
        "StateSaveLocation": str(folder / "state"),
        "SlurmdSpoolDir": str(spool / "%n"),
        "SlurmctldPidFile": str(folder / "slurmctld.pid"),
        "SlurmdPidFile": str(folder / "slurmd-%n.pid"),
        "SlurmdParameters": "config_overrides",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU_Memory",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": "bf_interval=1,sched_interval=1,sched_min_interval=100000,"
        "default_queue_depth=1000",
        "PriorityType": "priority/multifactor",
        "PriorityCalcPeriod": "1",
        "Epilog": "/bin/true",  # with any Epilog, slurmctld starts the next job sooner
        "ReturnToService": "2",
        "SlurmdTimeout": "10",
        "SlurmctldTimeout": "10",
        "MinJobAge": "300",
        "KillWait": "2",
        "InactiveLimit": "0",
        "MpiDefault": "none",
        "MailProg": "/bin/true",
        "JobCompType": "jobcomp/filetxt",
        "JobCompLoc": str(folder / "jobcomp.txt"),
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
        "SlurmctldDebug": "info",
        "SlurmdDebug": "error",
    }
    if any(group.gpus for group in settings.nodes):
        values["GresTypes"] = "gpu"
    if settings.accounting:
        values |= {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": str(ports["slurmdbd"]),
            "AccountingStoragePass": str(munge_socket(spool)),  # not AuthInfo, as for the rest
            "AccountingStorageEnforce": "associations,limits,qos",
            "AccountingStorageTRES": "gres/gpu",
        }
    if settings.backup:  # both use one port, so each listens at its own address only
        # Slurm replaces "localhost" by the host name, which would be the second's, too.
        host = f"{socket.gethostname()}(127.0.0.1)"
        values |= {"CommunicationParameters": "NoCtldInAddrAny", "SlurmctldHost": host}
    lines = [f"{name}={value}" for name, value in (values | settings.overrides).items()]
    if settings.backup:
        lines.append(f"SlurmctldHost={BACKUP}(127.0.0.2)")
    for group in settings.nodes:
        lines += [
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[name]} "
            f"CPUs={group.cpus} RealMemory={group.mem}"
            + (f" Gres={group.gpus}" if group.gpus else "")
            + (
                f" Sockets=1 CoresPerSocket={group.cpus // group.threads}"
                f" ThreadsPerCore={group.threads}"
                if group.threads > 1
                else ""
            )
            for name in group.names()
        ]
    for position, (name, nodes) in enumerate(settings.partitions.items()):
        default = "YES" if position == 0 else "NO"
        lines.append(
            f"PartitionName={name} Nodes={nodes} Default={default} MaxTime=INFINITE State=UP"
        )
    return "\n".join(lines) + "\n"


def gres_conf(settings: SlurmSettings, folder: Path) -> str:
    """Return the content of `gres.conf`. Empty files in a folder represent the GPUs."""
    lines = []
    for group in settings.nodes:
        for name in group.names() if group.gpus else ():
            files = [str(path) for path in gpu_files(group, name, folder)]
            _, *model, _count = group.gpus.split(":")
            kind = f" Type={model[0]}" if model else ""
            lines.append(f"NodeName={name} Name=gpu{kind} File={','.join(files)}")
    return "\n".join(lines) + "\n"


def gpu_files(group: NodeGroup, node: str, folder: Path) -> list[Path]:
    """Return the files that represent a node's GPUs. Slurm needs a file for each GPU."""
    count = int(group.gpus.rpartition(":")[2]) if group.gpus else 0
    return [folder / f"gpu-{node}-{number}" for number in range(count)]


def munge_socket(spool: Path) -> Path:
    """Return the path of munged's socket in the folder for sockets."""
    return spool / "munge.socket"


def database_socket(spool: Path) -> Path:
    """Return the path of the database's socket in the folder for sockets."""
    return spool / "database.socket"


def slurmdbd_conf(folder: Path, spool: Path, port: int) -> str:
    """Return the content of `slurmdbd.conf`.

    Args:
        folder: The Slurm's folder, with all its state.
        spool: Folder for sockets.
        port: Port of slurmdbd.
    """
    values = {
        "DbdHost": "localhost",
        "DbdAddr": "127.0.0.1",
        "DbdPort": str(port),
        "SlurmUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={munge_socket(spool)}",
        "PidFile": str(folder / "slurmdbd.pid"),
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": "root",
        "StorageLoc": "slurm",
        "DebugLevel": "info",
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())
