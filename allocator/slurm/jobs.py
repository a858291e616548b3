"""Jobs and nodes as Slurm's client commands describe them at one time."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC
from functools import lru_cache
from hashlib import blake2b
from math import ceil
from typing import NamedTuple

from allocator.fairness.quantities import Quantities
from allocator.slurm.rows import (
    COLUMN_END,
    RejectedRecords,
    ShapeError,
    excerpt,
    plain_name,
    reason_of,
    split_rows,
)
from allocator.slurm_notation import (
    ENDED,
    NEVER,
    RUNNING,
    WAITING,
    NotationError,
    duration,
    generic_resources,
    instant,
    job_state,
    mebibytes,
    number,
    trackable_resources,
)

OWN_COLUMNS = (
    "timeused",
    "jobid",
    "arrayjobid",
    "arraytaskid",
    "hetjobid",
    "state",
    "prioritylong",
    "nice",
    "submittime",
    "eligibletime",
    "starttime",
    "endtime",
    "resizetime",
    "restartcnt",
    "mincpus",
    "maxnodes",
    "numtasks",
    "ntpernode",
    "ntpersocket",
    "ntpercore",
    "threads",
    "minmemory",
    "oversubscribe",
    "nodelist",
    "tres-alloc",
)
"""Columns of `squeue --Format` without texts from users. The run time comes first, because it
changes with each second."""
TEXT_COLUMNS = (
    "username",
    "account",
    "partition",
    "qos",
    "reason",
    "cpus-per-tres",
    "tres-per-node",
    "tres-per-socket",
    "reqnodes",
    "feature",
)
"""Columns of `squeue --Format` that may contain any character. They follow `OWN_COLUMNS`."""
WIDTHS = {
    "reason": 100,
    "tres-per-node": 3,
    "tres-per-socket": 3,
    "reqnodes": 250,
    "feature": 250,
}
"""Columns of which `squeue` prints so many characters.

A reason can end with all unavailable nodes, and each job can ask for thousands of nodes. Jobs whose
requests begin alike count as jobs that fit on the same nodes. Three characters tell `N/A` from a
request for generic resources.
"""
_CPUS_PER_GPU = re.compile(r"gpu[:=](\d+)$")
_ANY_THREADS = "*"
"""Printed for a job without a request for threads of a core."""
_NO_REQUEST = "N/A"
"""Printed for a job without a request for generic resources."""
SEPARATOR = "|"
"""Separates the columns of `OWN_COLUMNS`."""
_HOLDING = {*RUNNING, "CONFIGURING", "RESIZING"}
"""States in which a job holds its resources, and has not ended."""
_LEAVING_NODES = {"COMPLETING", "STAGE_OUT"}
"""States of jobs that may be ending for good, or to be requeued."""
_EXCLUSIVE = {"USER", "MCS"}
"""Values of `oversubscribe` of jobs that keep other users away from their nodes."""
_SPARE_KINDS = {"cpus", "gpus", "mem"}
_LONGEST_KEPT = 1000
"""Maximum length of a row, or of a list of nodes, that is kept. A hash replaces a longer text.
On 5,000 nodes, the lists of each job can have 24 kB."""
_SHORTEST_LIMIT = 60.0
"""Seconds of the shortest time limit."""
_SUFFIXES = "*~#!%$@^-"
"""Characters that Slurm appends to a node's state, for example if the node does not respond."""
_UNUSABLE = {"DOWN", "ERROR", "FUTURE"}
_WITHOUT_JOBS = {"IDLE", "UNKNOWN"}
"""States of nodes that run no job. After a start, slurmctld does not know idle nodes yet."""
_NODE_STATES = {"ALLOCATED", "MIXED", *_WITHOUT_JOBS, *_UNUSABLE}
_LEAVING = {"DRAIN", "FAIL", "INVALID_REG", "INVAL"}
"""Flags of nodes that start no job any more."""


class JobKey(NamedTuple):
    """Identity of a job. After a crash, slurmctld may give a number to a job of another user."""

    number: int
    user: str
    """The user of the system to which the job belongs."""


@dataclass(frozen=True, slots=True)
class Job:
    """One record of a job: a whole job, a task of an array, or the pending rest of an array."""

    number: int
    """Slurm's job id, which is unique. Tasks of an array have different numbers."""
    array: int
    """Job id of the array. For other jobs, the same as `number`."""
    tasks: str
    """Task ids of the array that this record stands for, such as `4` or `4-9%3`; else empty."""
    heterogeneous: int
    """Job id of the first component of a heterogeneous job; 0 for other jobs."""
    user: str
    account: str
    partitions: tuple[str, ...]
    qos: str
    state: str
    reason: str
    """Why the job is pending, without details. `REVOKED`: the job runs on another cluster of the
    federation."""
    priority: int
    nice: int
    submitted: float
    """Times are in seconds since 1970."""
    eligible: float | None
    started: float | None
    """The start of the present attempt. None: the attempt has not started, or never started."""
    ended: float | None
    """The end of the present attempt. None: the attempt has not ended."""
    resized: bool
    """Whether the size of the allocation has changed since the start."""
    restarts: int
    """Number of earlier attempts that were requeued."""
    quantities: Quantities
    """Allocated resources; of a pending job, the most resources that one task may get."""
    nodes: str = ""
    """The nodes of a job with a start, in Slurm's notation."""
    exclusive: bool = False
    """Whether other users' jobs may not run on the nodes (`--exclusive=user` or `mcs`)."""
    spare: Quantities = field(default_factory=Quantities)
    """The part of `quantities`, and the memory of the nodes, that further jobs of the user can use.
    Empty unless the job is pending and exclusive."""
    placement: tuple[str, ...] = ()
    """Certain nodes and features that an exclusive job asks for; hashes of long texts."""
    key: JobKey = field(init=False, repr=False, compare=False)
    """Computed once, because each reading looks up all jobs."""
    target: str = field(init=False, repr=False, compare=False)
    """The name by which `scontrol` knows the record: `123`, or `100_4` for a single task."""

    def __post_init__(self) -> None:
        single = self.tasks.isdecimal()
        object.__setattr__(self, "key", JobKey(self.number, self.user))
        object.__setattr__(
            self, "target", f"{self.array}_{self.tasks}" if single else str(self.number)
        )

    @property
    def pending(self) -> bool:
        """Whether the job waits to start."""
        return self.state in WAITING and self.state not in _HOLDING

    @property
    def leaving(self) -> bool:
        """Whether the job has ended or was requeued, but its processes still use its nodes.

        Slurm gives them `KillWait`, by default 30 s. Meanwhile, Slurm shows a requeued job without
        a start, and with the former time of submission. A job that stages out files for a burst
        buffer has left its nodes, but its next submission comes later.
        """
        if self.started is not None:
            return self.state == "COMPLETING"
        return self.state in _LEAVING_NODES

    @property
    def single(self) -> str:
        """The name by which `scontrol show job` prints this record alone.

        By the id of an array or a heterogeneous job, it prints several records.
        """
        return f"{self.number}+0" if self.heterogeneous == self.number else self.target

    @property
    def suspended(self) -> bool:
        """Whether the job is suspended. A suspended job holds memory, but no cores."""
        return self.state == "SUSPENDED"


@dataclass(frozen=True, slots=True)
class JobDetail:
    """Times of a job's changes, which `scontrol show job` prints."""

    suspended: float | None
    """Time of the latest suspension or resumption, in seconds since 1970."""
    ran_before: float
    """Seconds that the job had run before the latest suspension."""
    resized: float | None
    """Time of the latest change of size, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """One node."""

    name: str
    state: str
    """State without flags: ALLOCATED, IDLE, MIXED, DOWN and others."""
    flags: frozenset[str]
    quantities: Quantities
    """All resources of the node."""
    partitions: tuple[str, ...]
    changed: float | None
    """Time at which the reason of an unusable node was set, in seconds since 1970."""
    sockets: int = 0
    """Number of sockets; 0 if Slurm does not tell."""
    threads: int = 1
    """Number of CPUs that Slurm allocates together: 1, or the threads of a core."""

    @property
    def counts(self) -> bool:
        """Whether the node is part of the capacity: it runs jobs, or may start jobs."""
        if self.state in _UNUSABLE:
            return False
        return self.state not in _WITHOUT_JOBS or not self.flags & _LEAVING


_RECORD = re.compile(r"^JobId=\d+ ", re.MULTILINE)
"""The beginning of a record of `scontrol show job`."""
_DETAILS = re.compile(
    r"(?:\sResizeTime=(\d+))?\sStartTime=\S+(?:\s(?!StartTime=)\w+=\S*)*?"
    r"\sSuspendTime=(\S+) SecsPreSuspend=(-?\d+)"
)
"""Times in the details of a job. Slurm's StartTime follows the job's name and account, so no match
reaches from the name or the account to Slurm's SuspendTime."""


class NodeSize(NamedTuple):
    """The number and the size of a partition's nodes, for the most resources of pending jobs."""

    cpus: int
    """The mean number of CPUs of the partition's nodes, rounded up."""
    gpus: int
    """The smallest number of GPUs of the partition's nodes."""
    mem: int
    """The smallest memory of the partition's nodes, in MiB."""
    nodes: int
    """The number of the partition's nodes."""
    sockets: int
    """The smallest number of sockets of the partition's nodes; 0 if Slurm does not tell."""
    largest: "_Amounts"
    """The largest amount of each resource on one of the partition's nodes."""
    threads: int
    """The largest number of CPUs that Slurm allocates together on the partition's nodes."""


class _Amounts(NamedTuple):
    """Resources of a node."""

    cpus: float
    gpus: float
    mem: float
    """Memory in MiB."""


class _Allocation(NamedTuple):
    """Resources that a pending job asks for, or may get."""

    nodes: float
    cpus: float
    gpus: float


class SeenJob(NamedTuple):
    """A job, and the seconds for which it has run in the present attempt."""

    job: Job
    ran: float


class JobReader:
    """Reads the output of `squeue` into jobs.

    Most rows are the same at each reading. A row that was read before yields the same object.
    Only changed jobs cost time.

    Args:
        measure: Converts trackable resources to quantities; by default `quantities`.
        rejected: Counts unreadable jobs.
    """

    def __init__(
        self,
        measure: Callable[[str], Quantities] | None = None,
        rejected: RejectedRecords | None = None,
    ) -> None:
        self._measure = quantities if measure is None else measure
        self._rejected = RejectedRecords() if rejected is None else rejected
        self._jobs: dict[str, SeenJob] = {}
        self._sizes: dict[str, NodeSize] = {}
        """The nodes of each partition."""

    def set_nodes(self, nodes: Iterable["ClusterNode"]) -> None:
        """Replace the nodes of the cluster, for pending jobs that will get whole nodes."""
        members: dict[str, list[ClusterNode]] = {}
        for node in nodes:
            for partition in node.partitions:
                members.setdefault(partition, []).append(node)
        sizes = {partition: _size(group) for partition, group in members.items()}
        if sizes != self._sizes:
            self._sizes = sizes
            self.forget()

    def forget(self) -> None:
        """Forget all rows, because `measure` or the nodes have changed."""
        self._jobs = {}

    def read(self, printed: bytes) -> list[SeenJob]:
        """Return all jobs.

        An unreadable job is left out and counted. If an earlier reading showed the job with
        resources, the job of this reading is returned.

        Args:
            printed: Output of `squeue`, for `split_rows`, without a header, and with times in
                seconds since 1970. The first column of a row has `OWN_COLUMNS`, separated by bars;
                then come `TEXT_COLUMNS`.

        Raises:
            ShapeError: A row has other columns, or most rows of most users have an unknown form.
        """
        earlier, jobs = self._jobs, dict[str, SeenJob]()
        seen = []
        arrays: dict[int, list[Job]] = {}
        reasons: dict[str, list[str]] = {}
        unreadable = set[tuple[str, str]]()
        readable = 0
        for row in split_rows(printed, 1 + len(TEXT_COLUMNS), "squeue"):
            used, _, rest = row.partition(SEPARATOR)
            key = _key(rest)
            shown = earlier.get(key)
            try:
                ran = _run_time(used)
                if shown is None:
                    shown = SeenJob(_job(rest, ran, self._measure, self._sizes), ran)
                elif shown.ran != ran:
                    shown = SeenJob(shown.job, ran)
            except ShapeError as error:
                own, user, *_ = rest.split(COLUMN_END)
                user = plain_name(user)
                reasons.setdefault(user, []).append(reason_of(error))
                unreadable.add((own.split(SEPARATOR)[0], user))
                continue
            readable += 1
            jobs[key] = shown
            job = shown.job
            if job.tasks and job.number == job.array and job.pending:
                arrays.setdefault(job.number, []).append(job)
            else:
                seen.append(shown)
        for tasks in arrays.values():  # Slurm since 23 prints a line for each task of a record
            together = ",".join(task.tasks for task in tasks)
            record = tasks[0] if len(tasks) == 1 else replace(tasks[0], tasks=together)
            seen.append(SeenJob(record, 0.0))
        if reasons:
            self._rejected.add_rows("squeue", reasons, {entry.job.user for entry in seen}, readable)
            last = self._last_seen(unreadable)
            seen += last.values()
            jobs |= last
        self._jobs = jobs
        return seen

    def _last_seen(self, unreadable: Collection[tuple[str, str]]) -> dict[str, SeenJob]:
        """Return the jobs of rejected rows as the latest reading with resources showed them.

        Args:
            unreadable: Job id and user of each rejected row.

        Returns:
            Jobs by a key unlike any row. The next reading finds the jobs by these keys.
        """
        return {
            f"last {entry.job.number}": entry
            for entry in self._jobs.values()
            if entry.job.started is not None
            and entry.job.ended is None
            and (str(entry.job.number), entry.job.user) in unreadable
        }


def _key(text: str) -> str:
    """Return the text, or the hash of a text longer than `_LONGEST_KEPT`, to compare texts."""
    if len(text) <= _LONGEST_KEPT:
        return text
    return blake2b(text.encode(errors="surrogateescape"), digest_size=16).hexdigest()


def _job(
    row: str,
    ran: float,
    measure: Callable[[str], Quantities],
    sizes: Mapping[str, NodeSize],
) -> Job:
    """Read a row without its first column.

    Args:
        row: The row.
        ran: Seconds for which the job has run, from the first column.
        measure: Converts trackable resources to quantities.
        sizes: The nodes of each partition.

    Raises:
        ShapeError: A field has an unknown form.
    """
    own, *texts = row.split(COLUMN_END)
    values = own.split(SEPARATOR)
    if len(values) != len(OWN_COLUMNS) - 1:
        raise ShapeError(
            f"squeue printed {len(values) + 1} columns instead of {len(OWN_COLUMNS)} "
            f"({', '.join(OWN_COLUMNS)}): {excerpt(row)}"
        )
    fields = dict(zip((*OWN_COLUMNS[1:], *TEXT_COLUMNS), (*values, *texts), strict=True))
    where = f"job {fields['jobid']}"
    state = job_state(fields["state"])
    if state not in {*WAITING, *RUNNING, *ENDED}:
        raise ShapeError(f"squeue, {where}: the state {fields['state']!r} is unknown")
    array = _whole(fields, "arrayjobid", where)
    tasks = fields["arraytaskid"]
    started, ended = _time(fields, "starttime", where), _time(fields, "endtime", where)
    holding = state in _HOLDING
    has_ended = state in ENDED and not holding
    if holding and started is None:
        raise ShapeError(f"squeue, {where}: starttime is {fields['starttime']!r}, state {state}")
    submitted = _time(fields, "submittime", where)
    if state in _LEAVING_NODES and _is_requeued(started, ended, ran):
        started, has_ended = None, False
    if has_ended and ended is None:
        raise ShapeError(f"squeue, {where}: endtime is {fields['endtime']!r}, state {state}")
    if submitted is None:
        raise ShapeError(f"squeue, {where}: submittime is {fields['submittime']!r}")
    partitions = tuple(map(plain_name, fields["partition"].split(",")))
    exclusive, spare = fields["oversubscribe"] in _EXCLUSIVE, Quantities()
    waits = state in WAITING and not holding
    try:
        text = fields["tres-alloc"]
        if waits:
            text, spare = _expected_of(fields, _sizes_of(partitions, sizes))
        allocated = measure(text)
    except NotationError as error:
        if not has_ended or started not in {None, ended}:
            raise ShapeError(f"squeue, {where}: tres-alloc: {error}") from None
        allocated = Quantities()  # a rejected or cancelled job that never held resources
    return Job(
        number=_whole(fields, "jobid", where),
        array=array,
        tasks="" if tasks in NEVER and tasks != "0" else tasks,
        heterogeneous=0 if fields["hetjobid"] in NEVER else _whole(fields, "hetjobid", where),
        user=plain_name(fields["username"]),
        account="" if fields["account"] in NEVER else plain_name(fields["account"]),
        partitions=partitions,
        qos="" if fields["qos"] in NEVER else plain_name(fields["qos"]),
        state=state,
        reason=state if state == "REVOKED" else plain_name(reason_code(fields["reason"])),
        priority=_whole(fields, "prioritylong", where),
        nice=_whole(fields, "nice", where),
        submitted=submitted,
        eligible=_time(fields, "eligibletime", where),
        started=started if holding or has_ended else None,
        ended=ended if has_ended else None,
        resized=fields["resizetime"] != "N/A",
        restarts=_whole(fields, "restartcnt", where),
        quantities=allocated,
        nodes="" if waits else fields["nodelist"],
        exclusive=exclusive,
        spare=spare,
        placement=_placement(fields) if exclusive else (),
    )


def _placement(fields: Mapping[str, str]) -> tuple[str, str]:
    """Return the nodes and the features that a job asks for, without blanks of the columns."""
    return _key(fields["reqnodes"].rstrip(" ")), _key(fields["feature"].rstrip(" "))


class _Request(NamedTuple):
    """Columns of `squeue` about the resources that a pending job may get."""

    tres: str
    cpus_per_tres: str
    mincpus: str
    maxnodes: str
    numtasks: str
    ntpernode: str
    ntpersocket: str
    ntpercore: str
    threads: str
    minmemory: str
    for_each_node: bool
    """Whether the job asks for generic resources on each node, or on each socket."""
    exclusive: bool
    """Whether other users' jobs may not run on the nodes (`--exclusive=user` or `mcs`)."""


def _request(fields: Mapping[str, str]) -> _Request:
    per_gpu = _CPUS_PER_GPU.search(fields["cpus-per-tres"])
    return _Request(
        fields["tres-alloc"],
        per_gpu[1] if per_gpu is not None else "0",
        fields["mincpus"],
        fields["maxnodes"],
        fields["numtasks"],
        fields["ntpernode"],
        fields["ntpersocket"],
        fields["ntpercore"],
        "0" if fields["threads"] == _ANY_THREADS else fields["threads"],
        fields["minmemory"],
        not fields["tres-per-node"] == fields["tres-per-socket"] == _NO_REQUEST,
        fields["oversubscribe"] in _EXCLUSIVE,
    )


def _expected_of(fields: Mapping[str, str], wanted: tuple[NodeSize, ...]) -> tuple[str, Quantities]:
    """Return the trackable resources of a pending job, and the part that its user can share.

    Args:
        fields: All columns of the job's row.
        wanted: The nodes of the job's partitions.

    Raises:
        NotationError: A column has an unknown form.
    """
    request = _request(fields)
    whole = request.exclusive or fields["oversubscribe"] == "NO"
    text = _expected(request, wanted, whole=whole)
    if not request.exclusive:
        return text, Quantities()
    return text, _spare(wanted, _expected(request, wanted, whole=False), text)


def _size(nodes: Collection[ClusterNode]) -> NodeSize:
    """Return the number and the size of a partition's nodes."""
    amounts = [node.quantities.to_doubles() for node in nodes]
    return NodeSize(
        ceil(sum(node.get("cpus", 0.0) for node in amounts) / len(amounts)),
        int(min(node.get("gpus", 0.0) for node in amounts)),
        int(min(node.get("mem", 0.0) for node in amounts)),
        len(amounts),
        min(node.sockets for node in nodes),
        _Amounts(*(max(node.get(kind, 0.0) for node in amounts) for kind in _Amounts._fields)),
        max(node.threads for node in nodes),
    )


@lru_cache(4096)
def _expected(request: _Request, wanted: tuple[NodeSize, ...], *, whole: bool) -> str:
    """Return the most trackable resources that a pending job may get.

    squeue shows the requested resources: with the smallest number of nodes, without the CPUs of
    `--mincpus` and `--cpus-per-gpu`, and without the remaining threads of cores, and the remaining
    CPUs and GPUs of nodes, that the job will get as a whole.

    Args:
        request: The request.
        wanted: The nodes of the job's partitions.
        whole: Whether the job keeps all other users away from its nodes.

    Raises:
        NotationError: A column has an unknown form.
    """
    resources = dict(trackable_resources(request.tres))
    asked = _Allocation(
        number(resources.get("node", "1"), "nodes"),
        number(resources.get("cpu", "0"), "cpus"),
        generic_resources(resources).get("gpus", 0.0),
    )
    nodes = _most_nodes(request, asked, mebibytes(resources.get("mem", "0")), wanted)
    if nodes > asked.nodes > 0 and request.for_each_node:
        for name, amount in resources.items():
            if name.startswith("gres/"):
                resources[name] = str(ceil(number(amount, name) * nodes / asked.nodes))
    gpus = generic_resources(resources).get("gpus", 0.0)
    cpus = max(
        asked.cpus,
        nodes * number(request.mincpus, "mincpus"),
        gpus * number(request.cpus_per_tres, "cpus-per-tres"),
    )
    threads = max((size.threads for size in wanted), default=1)
    used = int(_count(request.threads, "threads"))
    allocated = max(
        cpus, threads * _cores(request, int(nodes), cpus, min(used or threads, threads))
    )
    most = _Allocation(nodes, cpus if 0 < used < threads else allocated, gpus)
    cpus = allocated  # unused threads need no memory
    if whole:
        kept = _whole_nodes(most, wanted)
        if kept.gpus > gpus:
            resources = {
                name: amount
                for name, amount in resources.items()
                if not name.startswith("gres/gpu:")
            }
            resources["gres/gpu"] = str(int(kept.gpus))
        cpus = max(cpus, kept.cpus)
        if not request.exclusive:  # Slurm allocates the whole nodes
            most = kept
    if "mem" in resources and most != asked:
        memory = _most_memory(mebibytes(resources["mem"]), request.minmemory, asked, most, wanted)
        resources["mem"] = f"{memory}M"
    if nodes > asked.nodes:
        resources["node"] = str(int(nodes))
    if cpus > asked.cpus:
        resources["cpu"] = str(int(cpus))
    return ",".join(f"{name}={amount}" for name, amount in resources.items())


def _most_nodes(
    request: _Request, asked: _Allocation, memory: float, wanted: Iterable[NodeSize]
) -> float:
    """Return the largest number of nodes that a pending job may get.

    It is the end of the requested range, which Slurm replaces by an estimate for a job without
    `--nodes`. It is larger if the tasks or resources do not fit on so few nodes.

    Args:
        request: The request.
        asked: The requested resources, with the smallest number of nodes.
        memory: The requested memory in MiB.
        wanted: The nodes of the job's partitions.

    Raises:
        NotationError: A column has an unknown form.
    """
    last = _count(request.maxnodes, "maxnodes")
    tasks = _count(request.numtasks, "numtasks")
    of_node = _count(request.ntpernode, "ntpernode")
    of_socket = _count(request.ntpersocket, "ntpersocket")
    for_each_cpu = memory and mebibytes(request.minmemory) * asked.cpus == memory
    of_task = _Amounts(
        asked.cpus / tasks if tasks else 0.0, 0.0, memory / tasks if tasks and for_each_cpu else 0.0
    )
    most = asked.nodes
    for size in wanted:
        if of_task.cpus > size.largest.cpus or of_task.mem > size.largest.mem > 0:
            continue  # no task fits on a node of this partition
        parts = (
            (asked.cpus, size.largest.cpus),
            (asked.gpus, size.largest.gpus),
            (memory, size.largest.mem),
            (tasks, size.largest.cpus // of_task.cpus if of_task.cpus else 0.0),
            (tasks, size.largest.mem // of_task.mem if of_task.mem else 0.0),
            (tasks, of_node),
            (tasks, of_socket * size.sockets),
        )
        needed = max((ceil(amount / each) for amount, each in parts if each), default=0)
        most = max(most, min(max(last, needed), size.nodes))
    return most


def _cores(request: _Request, nodes: int, cpus: float, used: int) -> int:
    """Return the number of cores of a job whose tasks are spread evenly over its nodes.

    Args:
        request: The request.
        nodes: The most nodes that the job may get.
        cpus: The CPUs that the tasks need.
        used: The most threads of a core that the job uses.

    Raises:
        NotationError: A column has an unknown form.
    """
    most = int(_count(request.ntpercore, "ntpercore"))
    tasks = int(_count(request.numtasks, "numtasks"))
    if not tasks or cpus % tasks:
        tasks = ceil(cpus)
    of_task = ceil(cpus / tasks) if tasks else 0

    def cores(tasks: int) -> int:
        """Return the number of cores of tasks on one node."""
        if not most or not of_task or 0 < used // of_task <= most:
            return ceil(tasks * of_task / used)
        return tasks * ceil(of_task / used) if of_task > used else ceil(tasks / most)

    each, more = divmod(tasks, max(nodes, 1))
    return more * cores(each + 1) + (max(nodes, 1) - more) * cores(each)


def _count(text: str, name: str) -> float:
    """Return the number in a column, or 0 for no number."""
    return 0.0 if text in NEVER else number(text, name)


def _whole_nodes(most: _Allocation, wanted: Collection[NodeSize]) -> _Allocation:
    """Return the CPUs and GPUs of a job that keeps all other users away from its nodes."""
    cpus = most.nodes * max((size.cpus for size in wanted), default=0)
    gpus = most.nodes * min((size.gpus for size in wanted), default=0)
    return _Allocation(most.nodes, max(most.cpus, cpus), max(most.gpus, gpus))


def _most_memory(
    requested: float,
    each: str,
    asked: _Allocation,
    most: _Allocation,
    wanted: Iterable[NodeSize],
) -> int:
    """Return the most memory that a pending job may get, in MiB.

    squeue does not tell `--mem` from `--mem-per-cpu`. If both would lead to the requested memory,
    the larger amount counts, up to the memory of the nodes.

    Args:
        requested: The memory of the request.
        each: The memory of each node, or of each CPU, as squeue shows it.
        asked: The requested resources.
        most: The most resources that the job may get.
        wanted: The nodes of the job's partitions.

    Raises:
        NotationError: `each` has an unknown form.
    """
    amount = mebibytes(each)
    of_nodes = most.nodes / asked.nodes if asked.nodes else 1.0
    of_cpus = most.cpus / asked.cpus if asked.cpus else 1.0
    of_gpus = most.gpus / asked.gpus if asked.gpus else 1.0
    factors = []
    if amount and amount * asked.nodes == requested:
        factors.append(of_nodes)
    if amount and amount * asked.cpus == requested:
        factors.append(of_cpus)
    if not factors and asked.gpus:  # `--mem-per-gpu`, or `--mem=0`
        factors = [of_gpus] if amount else [of_nodes, of_gpus]
    factor = max(factors or (of_nodes, of_cpus))
    limit = most.nodes * max((size.largest.mem for size in wanted), default=0.0)
    return ceil(max(requested, min(requested * factor, limit)))


def _sizes_of(partitions: Iterable[str], sizes: Mapping[str, NodeSize]) -> tuple[NodeSize, ...]:
    """Return the nodes of a job's partitions."""
    return tuple([sizes[name] for name in partitions if name in sizes])


def _spare(wanted: Iterable[NodeSize], asked: str, whole: str) -> Quantities:
    """Return the resources of a pending job's whole nodes beyond its own.

    Args:
        wanted: The nodes of the job's partitions.
        asked: The trackable resources that the job will get.
        whole: The trackable resources that the job will keep from other users.
    """
    own, kept = quantities(asked).to_doubles(), quantities(whole).to_doubles()
    nodes = number(trackable_resources(asked).get("node", "1"), "nodes")
    kept["mem"] = nodes * min((size.mem for size in wanted), default=0)
    spare = {name: kept[name] - own.get(name, 0.0) for name in kept if name in _SPARE_KINDS}
    return Quantities.from_doubles({name: amount for name, amount in spare.items() if amount > 0})


def _is_requeued(started: float | None, ended: float | None, ran: float) -> bool:
    """Return whether a job that leaves its nodes starts once more.

    Slurm then shows no run time, and possible times of the next attempt: as its start the time of
    the reading, and as its end the start plus the time limit; or neither.

    Args:
        started: The start that Slurm shows, in seconds since 1970.
        ended: The end that Slurm shows.
        ran: Seconds for which the job has run.
    """
    if started is None or ended is None:
        return True
    return not ran and ended - started >= _SHORTEST_LIMIT


def _whole(fields: Mapping[str, str], name: str, where: str) -> int:
    try:
        return int(fields[name])
    except ValueError:
        raise ShapeError(f"squeue, {where}: {name} is {fields[name]!r}, not a number") from None


def _time(fields: Mapping[str, str], name: str, where: str) -> float | None:
    text = fields[name]
    if text in NEVER:
        return None
    if not text.isdecimal():
        raise ShapeError(f"squeue, {where}: {name} is {text!r}, not seconds since 1970")
    return float(text)


@lru_cache(1 << 16)
def _run_time(text: str) -> float:
    try:
        ran = duration(text, "timeused")
    except NotationError as error:
        raise ShapeError(f"squeue: {error}: {text!r}") from None
    return 0.0 if ran is None else ran


@lru_cache(4096)
def quantities(text: str) -> Quantities:
    """Convert trackable resources to cores (`cpus`), MiB (`mem`), GPUs and generic resources.

    Args:
        text: A list such as `cpu=4,mem=16G,node=1,billing=4,gres/gpu=2`, or a text for no value.

    Raises:
        NotationError: The text is no such list.
    """
    resources = trackable_resources(text)
    amounts = generic_resources(resources)
    if "cpu" in resources:
        amounts["cpus"] = number(resources["cpu"], "cpus")
    if "mem" in resources:
        amounts["mem"] = mebibytes(resources["mem"])
    return Quantities.from_doubles(amounts)


@lru_cache(4096)
def reason_code(text: str) -> str:
    """Return a reason without details: `ReqNodeNotAvail` for `ReqNodeNotAvail, Unavail…:n4`.

    Slurm also has sentences as reasons, such as `job requeued in held state`.
    """
    reason = re.split(r"[,(:]", text.strip(" ()"), maxsplit=1)[0].strip()
    if reason.startswith("Nodes required for job"):
        return "Nodes"
    return reason or "None"


def read_details(
    texts: Mapping[int, str], rejected: RejectedRecords | None = None
) -> dict[int, JobDetail]:
    """Read the output of `scontrol --oneliner show job`, with times in seconds since 1970.

    A job's name or folder may repeat Slurm's fields, or begin a line as a record does. If there are
    several records or different values, the details are unknown.

    Args:
        texts: The output for each job by job id: a single record.
        rejected: Counts jobs whose details are ambiguous.

    Returns:
        Details by job id.

    Raises:
        ShapeError: A field is missing or has an unknown form.
    """
    details = {}
    for number_of_job, text in texts.items():
        where = f"scontrol show job {number_of_job}"
        values = set(_DETAILS.findall(text))
        if not values:
            raise ShapeError(f"{where}: the field SuspendTime or SecsPreSuspend is missing")
        if len(values) == len(_RECORD.findall(text)) == 1:
            resized, suspended, ran_before = values.pop()
            details[number_of_job] = JobDetail(
                _moment(suspended, "SuspendTime", where),
                float(ran_before),
                _moment(resized, "ResizeTime", where),
            )
        elif rejected is not None:
            error = ShapeError(f"{where}: the field JobId or SuspendTime has several values")
            rejected.add("scontrol", reason_of(error))
    return details


def read_nodes(text: str, *, whole_cores: bool = False) -> list[ClusterNode]:
    """Read the output of `scontrol --oneliner show nodes`, with times in seconds since 1970.

    Args:
        text: The output.
        whole_cores: Whether Slurm allocates all threads of a core to one job.

    Raises:
        ShapeError: A field is missing or has an unknown form.
    """
    lines = text.split("\n")
    return [_node(line, whole_cores) for line in lines if line.startswith("NodeName=")]


def _node(line: str, whole_cores: bool) -> ClusterNode:  # noqa: FBT001 - private
    name = _required(line, "NodeName", "scontrol show nodes")
    where = f"scontrol show node {name}"
    state, *flags = (part.rstrip(_SUFFIXES) for part in _required(line, "State", where).split("+"))
    if state not in _NODE_STATES:
        raise ShapeError(f"{where}: the State {state!r} is unknown")
    reason = re.search(r" Reason=.*?\[[^\]@]*@(\d+)\]", line)
    partitions = _value(line, "Partitions")
    try:
        amounts = quantities(_required(line, "CfgTRES", where))
    except NotationError as error:
        raise ShapeError(f"{where}: CfgTRES: {error}") from None
    return ClusterNode(
        name,
        state,
        frozenset(flags),
        amounts,
        tuple(partitions.split(",")) if partitions else (),
        _moment(reason[1], "Reason", where) if reason else None,
        _whole_number(line, "Sockets"),
        _threads(line) if whole_cores else 1,
    )


def _threads(line: str) -> int:
    """Return the number of CPUs of a core; 1 if Slurm does not tell."""
    cores = _whole_number(line, "Sockets") * _whole_number(line, "CoresPerSocket")
    return max(_whole_number(line, "CPUTot") // cores, 1) if cores else 1


def _whole_number(line: str, name: str) -> int:
    """Return the number in a field; 0 if Slurm does not tell."""
    value = _value(line, name) or ""
    return int(value) if value.isdecimal() else 0


@lru_cache(64)
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|\s){name}=(\S*)")


def _value(line: str, name: str) -> str | None:
    match = _pattern(name).search(line)
    return match[1] if match else None


def _required(line: str, name: str, where: str) -> str:
    value = _value(line, name)
    if value is None:
        raise ShapeError(f"{where}: the field {name} is missing")
    return value


def _moment(text: str, name: str, where: str) -> float | None:
    if text in NEVER:
        return None
    try:
        return instant(text, UTC, name)
    except NotationError as error:
        raise ShapeError(f"{where}: {error}: {text!r}") from None


def array_tasks(text: str) -> Iterator[int]:
    """Yield the task ids of an array: `1,4-8:2%3` yields 1, 4, 6 and 8.

    Slurm cuts long lists off and ends them with `...`; the ids before the cut are yielded.

    Raises:
        ShapeError: The text is not a list of task ids.
    """
    for found in re.finditer(r"[^,]+", text.partition("%")[0]):  # lazy: lists may be long
        part = found[0].strip()
        if part in {"", "..."}:
            continue
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?(\.\.\.)?", part)
        if match is None:
            raise ShapeError(f"squeue: the task ids of an array are {text!r}")
        first, last, step = match[1], match[2] or match[1], match[3] or "1"
        if match[4]:
            last = first  # the last number may be cut off
        yield from range(int(first), int(last) + 1, int(step))


def array_limit(text: str) -> int | None:
    """Return how many tasks of an array may run at a time: 3 for `4-9%3`; None for no limit."""
    limit = text.partition("%")[2]
    return int(limit) if limit.isdecimal() and int(limit) else None
