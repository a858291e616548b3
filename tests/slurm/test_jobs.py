"""Readers of Slurm's output: known fields are read exactly, unknown ones are errors by name."""

import tracemalloc

import pytest

from allocator.fairness.quantities import Quantities
from allocator.slurm.jobs import (
    OWN_COLUMNS,
    TEXT_COLUMNS,
    Job,
    JobDetail,
    JobReader,
    array_limit,
    array_tasks,
    read_details,
    read_nodes,
    reason_code,
)
from allocator.slurm.order import can_start
from allocator.slurm.reasons import group_of
from allocator.slurm.rows import COLUMN_END, ShapeError
from allocator.slurm.timelines import JobTimeline

COLUMNS = (*OWN_COLUMNS, *TEXT_COLUMNS)
PENDING = (
    "0:00|13|13|1-3,6-9%2|N/A|PENDING|999|0|1795707788|1795707788|1827243789|NONE|N/A|0|1|1|2|0|N/A|N/A|*|64000M|"
    "OK||cpu=2,mem=62.50G,node=1,billing=1,gres/gpu=2,gres/gpu:a100=2|games|phys|gpu,main|normal|"
    "Priority|N/A|gre|N/A||(null)"
)
RUNNING = (
    "1-02:03:04|4|4|N/A|N/A|RUNNING|1|0|1795707933|1795707933|1795707933|1827243933|N/A|0|1|1|1|0|N/A|N/A|*|1G|"
    "OK|n4|cpu=1,mem=1G,node=1,billing=1|man|(null)|main|(null)|None|N/A|N/A|N/A||(null)"
)
NODE = (
    "NodeName=n4 Arch=x86_64 CPUAlloc=3 CPUTot=40 Gres=gpu:a100:4 OS=Linux 6.18 #1 SMP @0  "
    "RealMemory=60000 State=DOWN*+DRAIN+NOT_RESPONDING ThreadsPerCore=1 Partitions=main,all  "
    "CfgTRES=cpu=40,mem=60000M,billing=40,gres/gpu=4 AllocTRES= "
    "Reason=Not responding, see [ticket] [root@1795707968]"
)


def printed(*lines: str) -> bytes:
    """Return rows in the form of `SlurmClient.jobs`."""
    texts = len(TEXT_COLUMNS)
    ended = (COLUMN_END.join(line.rsplit("|", texts)) for line in lines)
    return "".join(f"{line}{COLUMN_END}\n" for line in ended).encode()


def read(*lines: str) -> list[Job]:
    return [seen.job for seen in JobReader().read(printed(*lines))]


def changed(line: str, **fields: str) -> str:
    texts = dict(zip(COLUMNS, line.split("|"), strict=True))
    unknown = {name.replace("_", "-"): text for name, text in fields.items()}
    return "|".join((texts | unknown).values())


def test_a_pending_array_has_tasks_a_request_and_no_start() -> None:
    (job,) = read(PENDING)
    assert (job.number, job.array, job.tasks) == (13, 13, "1-3,6-9%2")
    assert (job.user, job.account, job.partitions) == ("games", "phys", ("gpu", "main"))
    assert (job.submitted, job.started, job.ended) == (1795707788.0, None, None)
    assert job.quantities == Quantities.parse("cpus:2;mem:64000;gpus:2")
    assert job.pending


@pytest.mark.parametrize("account", ["phys", "\N{FIRE}"])
def test_long_lists_of_requested_nodes_are_compared_and_take_no_memory(account: str) -> None:
    """In a text with one wide character, each character would take four bytes."""
    nodes = [f"n[{first},{'3,' * 6000}9]" for first in (1, 2)]
    fields = [{"oversubscribe": "USER", "reqnodes": text} for text in nodes]
    reader = JobReader()
    rows = [changed(PENDING, jobid=str(n), **fields[n % 2]) for n in range(200)]
    rows[0] = changed(rows[0], account=account)
    text = printed(*rows)
    tracemalloc.start()
    try:
        jobs = [seen.job for seen in reader.read(text)]
        assert tracemalloc.get_traced_memory()[1] < len(text) / 2
    finally:
        tracemalloc.stop()
    assert len({job.placement for job in jobs}) == len(nodes)
    assert [id(seen.job) for seen in reader.read(text)] == list(map(id, jobs))


@pytest.mark.parametrize(
    ("fields", "resources"),
    [
        ({"mincpus": "20", "tres_alloc": "cpu=2,mem=10M,node=2,billing=2"}, "cpus:40;mem:10"),
        ({"mincpus": "3", "tres_alloc": "cpu=12,mem=10M,node=1,billing=12"}, "cpus:12;mem:10"),
        ({"oversubscribe": "NO", "tres_alloc": "cpu=1,mem=20M,node=2"}, "cpus:80;mem:20"),
        ({"oversubscribe": "NO", "tres_alloc": "cpu=1,mem=20M", "partition": "x"}, "cpus:1;mem:20"),
        ({"oversubscribe": "USER", "tres_alloc": "cpu=1,mem=20M,node=2"}, "cpus:80;mem:20"),
        ({"oversubscribe": "MCS", "tres_alloc": "cpu=1,mem=20M,node=1"}, "cpus:40;mem:20"),
        (
            {"oversubscribe": "NO", "partition": "gpu", "tres_alloc": "cpu=1,mem=9M,node=1"},
            "cpus:12;mem:9;gpus:4",
        ),
        (
            {
                "oversubscribe": "NO",
                "partition": "gpu",
                "tres_alloc": "cpu=1,mem=9M,node=2,gres/gpu:a100=2,gres/gpu=2",
            },
            "cpus:24;mem:9;gpus:8",
        ),
        (
            {"cpus_per_tres": "gres:gpu:5", "tres_alloc": "cpu=1,mem=9M,node=1,gres/gpu=2"},
            "cpus:10;mem:9;gpus:2",
        ),
    ],
)
def test_a_pending_job_counts_as_much_as_slurm_allocates_at_its_start(
    fields: dict[str, str], resources: str
) -> None:
    """Rows of Slurm 22.05 with `--mincpus`, `-N2 --exclusive`, and `--cpus-per-gpu`."""
    reader = JobReader()
    amounts = (("main", "cpu=40"), ("gpu", "cpu=8,gres/gpu=4"), ("gpu", "cpu=16,gres/gpu=8"))
    lines = [
        f"NodeName=n{place} State=IDLE Partitions={name} CfgTRES={amount}"
        for place, (name, amount) in enumerate(amounts)
    ]
    row = printed(changed(PENDING, arraytaskid="N/A", **{"partition": "main", **fields}))
    reader.read(row)
    reader.set_nodes(read_nodes("\n".join(lines)))
    ((job, _),) = reader.read(row)
    assert job.quantities == Quantities.parse(resources)


@pytest.mark.parametrize(
    ("fields", "asked", "resources"),
    [
        ({"maxnodes": "4", "mincpus": "4"}, "cpu=4,mem=400M,node=1", "cpus:16;mem:1600"),
        ({"maxnodes": "100000"}, "cpu=1,mem=100M,node=1", "cpus:4;mem:400"),
        ({"maxnodes": "3", "minmemory": "1G"}, "cpu=4,mem=1G,node=1", "cpus:4;mem:3072"),
        ({"maxnodes": "3"}, "cpu=4,mem=400M,node=1", "cpus:4;mem:400"),
        ({"maxnodes": "3", "minmemory": "0"}, "cpu=4,mem=4000M,node=1", "cpus:4;mem:12000"),
        (
            {"numtasks": "6", "ntpernode": "4", "mincpus": "4", "tres_per_node": "gre"},
            "cpu=6,mem=600M,node=1,gres/gpu=4",
            "cpus:8;mem:800;gpus:8",
        ),
        (
            {"numtasks": "6", "ntpersocket": "1", "tres_per_node": "gre"},
            "cpu=6,mem=600M,node=1,gres/gpu=4",
            "cpus:6;mem:600;gpus:12",
        ),
        (
            {"maxnodes": "4", "tres_per_socket": "gre"},
            "cpu=4,mem=400M,node=1,gres/gpu=1,gres/gpu:a100=1",
            "cpus:4;mem:400;gpus:4",
        ),
        ({"maxnodes": "4"}, "cpu=4,mem=400M,node=1,gres/gpu=4", "cpus:4;mem:400;gpus:4"),
        ({"minmemory": "1000M"}, "cpu=1,mem=1000M,node=1,gres/gpu=8", "cpus:2;mem:2000;gpus:8"),
        (
            {"maxnodes": "4", "tres_per_node": "gre"},
            "cpu=8,mem=1000M,node=1,gres/gpu=2",
            "cpus:8;mem:4000;gpus:8",
        ),
        (
            {"minmemory": "4000M", "numtasks": "4", "tres_per_node": "gre"},
            "cpu=4,mem=16000M,node=1,gres/gpu=4",
            "cpus:4;mem:16000;gpus:16",
        ),
        (
            {"minmemory": "3000M", "numtasks": "4", "tres_per_node": "gre"},
            "cpu=4,mem=12000M,node=1,gres/gpu=4",
            "cpus:4;mem:12000;gpus:16",
        ),
        (
            {"numtasks": "3", "mincpus": "5", "tres_per_node": "gre"},
            "cpu=15,mem=1500M,node=1,gres/gpu=4",
            "cpus:15;mem:1500;gpus:12",
        ),
        ({"oversubscribe": "NO"}, "cpu=1,mem=100M,node=1", "cpus:8;mem:800;gpus:4"),
        (
            {"oversubscribe": "NO", "minmemory": "3000M"},
            "cpu=1,mem=3000M,node=1",
            "cpus:8;mem:4000;gpus:4",
        ),
        (
            {"oversubscribe": "NO", "minmemory": "500M"},
            "cpu=2,mem=500M,node=1",
            "cpus:8;mem:500;gpus:4",
        ),
    ],
)
def test_a_pending_job_counts_with_the_most_that_slurm_may_allocate(
    fields: dict[str, str], asked: str, resources: str
) -> None:
    """Rows of Slurm 22.05 with ranges of nodes, tasks per node, and amounts of each node."""
    reader = JobReader()
    line = "State=IDLE Partitions=main Sockets=2 CfgTRES=cpu=8,mem=4000M,gres/gpu=4"
    reader.set_nodes(read_nodes("\n".join(f"NodeName=n{place} {line}" for place in range(4))))
    plain = {"partition": "main", "tres_per_node": "N/A", "minmemory": "100M", "tres_alloc": asked}
    row = changed(PENDING, arraytaskid="N/A", **{**plain, **fields})
    ((job, _),) = reader.read(printed(row))
    assert job.quantities == Quantities.parse(resources)


@pytest.mark.parametrize(
    ("fields", "asked", "resources"),
    [
        ({"numtasks": "2"}, "cpu=2,mem=200M,node=1", "cpus:2;mem:200"),
        ({"numtasks": "3"}, "cpu=3,mem=300M,node=1", "cpus:4;mem:400"),
        ({"numtasks": "3", "mincpus": "3"}, "cpu=9,mem=900M,node=1", "cpus:10;mem:1000"),
        ({"numtasks": "5", "maxnodes": "2"}, "cpu=5,mem=500M,node=2", "cpus:6;mem:600"),
        ({"numtasks": "4", "maxnodes": "4"}, "cpu=4,mem=400M,node=4", "cpus:8;mem:800"),
        ({"numtasks": "3", "threads": "1"}, "cpu=3,mem=300M,node=1", "cpus:6;mem:300"),
        ({"numtasks": "3", "threads": "2"}, "cpu=3,mem=300M,node=1", "cpus:4;mem:400"),
        ({"numtasks": "2", "threads": "1"}, "cpu=6,mem=600M,node=1", "cpus:12;mem:600"),
        ({"numtasks": "1", "threads": "1", "mincpus": "3"}, "cpu=1,mem=100M,node=1",
         "cpus:6;mem:300"),
        ({"numtasks": "4", "ntpercore": "1"}, "cpu=4,mem=400M,node=1", "cpus:8;mem:800"),
        ({"numtasks": "4", "ntpercore": "2"}, "cpu=4,mem=400M,node=1", "cpus:4;mem:400"),
        ({"numtasks": "2", "ntpercore": "1"}, "cpu=6,mem=600M,node=1", "cpus:8;mem:800"),
    ],
)  # fmt: skip
def test_a_pending_job_counts_with_all_threads_of_its_cores(
    fields: dict[str, str], asked: str, resources: str
) -> None:
    """Rows of Slurm 22.05 and 24.11 with CR_Core_Memory."""
    reader = JobReader()
    line = (
        "State=IDLE Partitions=main Sockets=2 CoresPerSocket=4 CPUTot=16 CfgTRES=cpu=16,mem=4000M"
    )
    nodes = "\n".join(f"NodeName=n{place} {line}" for place in range(4))
    plain = {"partition": "main", "tres_per_node": "N/A", "minmemory": "100M", "tres_alloc": asked}
    row = printed(changed(PENDING, arraytaskid="N/A", **{**plain, **fields}))
    reader.set_nodes(read_nodes(nodes, whole_cores=True))
    ((job, _),) = reader.read(row)
    assert job.quantities == Quantities.parse(resources)


def test_a_partition_on_which_no_task_fits_adds_no_nodes() -> None:
    reader = JobReader()
    sizes = (("small", "cpu=8,mem=4G"), ("large", "cpu=32,mem=64G"))
    lines = [
        f"NodeName={name}{place} State=IDLE Partitions={name} CfgTRES={amount}"
        for name, amount in sizes
        for place in range(4)
    ]
    reader.set_nodes(read_nodes("\n".join(lines)))
    row = changed(
        PENDING, arraytaskid="N/A", partition="small,large", numtasks="1", mincpus="16",
        minmemory="1000M", tres_alloc="cpu=16,mem=16000M,node=1",
    )  # fmt: skip
    ((job, _),) = reader.read(printed(row))
    assert job.quantities == Quantities.parse("cpus:16;mem:16000")


@pytest.mark.parametrize(
    "fields",
    [{"maxnodes": "-2"}, {"numtasks": "x"}, {"ntpernode": "1-2"}, {"ntpersocket": "*"},
     {"ntpercore": "*", "numtasks": "2"}, {"threads": "x"},
     {"minmemory": "4?", "mincpus": "5"}],
)  # fmt: skip
def test_an_unknown_form_of_a_requested_amount_is_no_zero(fields: dict[str, str]) -> None:
    with pytest.raises(ShapeError, match="job 13: tres-alloc"):
        read(changed(PENDING, **fields))


def test_a_running_job_has_a_start_but_its_planned_end_is_no_end() -> None:
    (seen,) = JobReader().read(printed(RUNNING))
    assert (seen.job.started, seen.job.ended, seen.ran) == (1795707933.0, None, 93784.0)
    assert (seen.job.account, seen.job.tasks, seen.job.heterogeneous) == ("", "", 0)


def test_unchanged_lines_yield_the_same_objects_although_time_passes() -> None:
    reader = JobReader()
    (before,) = reader.read(printed(RUNNING))
    (after,) = reader.read(printed(RUNNING.replace("1-02:03:04", "1-02:03:14")))
    assert after.job is before.job
    assert after.ran == before.ran + 10


def test_tasks_of_one_record_in_several_lines_are_one_job() -> None:
    lines = [changed(PENDING, arraytaskid=task) for task in ("1", "2", "9")]
    split = changed(PENDING, jobid="18", arraytaskid="4")
    record, task = sorted(read(*lines, split), key=lambda job: job.number)
    assert list(array_tasks(record.tasks)) == [1, 2, 9]
    assert (task.number, task.array, task.tasks) == (18, 13, "4")


@pytest.mark.parametrize(
    "times",
    [
        {"starttime": "1795707999", "endtime": "NONE"},
        {"starttime": "1795707999", "endtime": "1795711599"},
        {"starttime": "N/A", "endtime": "N/A"},
    ],
)
def test_a_requeued_job_that_leaves_its_nodes_has_no_start(times: dict[str, str]) -> None:
    """Rows of Slurm 22.05 without a time limit, with one, and with the begin time now."""
    line = changed(RUNNING, timeused="0:00", state="COMPLETING", restartcnt="1", **times)
    (job,) = read(line)
    assert (job.started, job.ended, job.submitted) == (None, None, 1795707933.0)
    assert job.leaving
    assert not job.pending


def test_a_job_that_leaves_its_nodes_for_good_has_an_end() -> None:
    ends = {"state": "COMPLETING", "restartcnt": "1"}
    for used, end in (("0:00", "1795707933"), ("1:01", "1795707994")):
        (job,) = read(changed(RUNNING, timeused=used, endtime=end, **ends))
        assert (job.started, job.ended, job.leaving) == (1795707933.0, float(end), True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"state": "FROZEN"}, "job 4: the state 'FROZEN' is unknown"),
        ({"starttime": "2026-11-26T10:00:00"}, "job 4: starttime is '2026-11-26T10:00:00', not"),
        ({"starttime": "N/A"}, "job 4: starttime is 'N/A'"),
        ({"submittime": "N/A"}, "job 4: submittime is 'N/A'"),
        ({"restartcnt": "many"}, "job 4: restartcnt is 'many', not a number"),
        ({"tres_alloc": "4 cores"}, "job 4: tres-alloc: trackable resources are not a list"),
        ({"timeused": "long"}, "timeused is not a duration"),
    ],
)
def test_an_unknown_form_is_an_error_that_names_the_field(
    fields: dict[str, str], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        read(changed(RUNNING, **fields))


def test_a_missing_column_is_an_error_that_shows_the_line() -> None:
    with pytest.raises(ShapeError, match="24 columns instead of 25"):
        read(RUNNING.partition("|")[2])


def test_a_reason_may_contain_any_character() -> None:
    (job,) = read(changed(PENDING, reason="ReqNodeNotAvail, UnavailableNodes:n[1-4]"))
    assert job.reason == "ReqNodeNotAvail"
    assert reason_code("") == "None"


@pytest.mark.parametrize(
    ("text", "code", "group"),
    [
        ("(launch failed requeued held)", "launch failed requeued held", "held"),
        ("job requeued in held state", "job requeued in held state", "held"),
        ("(Nodes required for job are DOWN, DRAINED or reserved for others)", "Nodes", "nodes"),
        ("(Reservation)", "Reservation", "reservation"),
    ],
)
def test_sentences_of_slurm_are_reasons(text: str, code: str, group: str) -> None:
    assert reason_code(text) == code
    assert group_of(code) == group


def test_a_job_that_another_cluster_of_the_federation_runs_is_not_ready_here() -> None:
    (job,) = read(changed(PENDING, state="REVOKED", reason="None"))
    assert not can_start(job.reason)


def test_task_ids_of_arrays() -> None:
    assert list(array_tasks("1,4-8:2%3")) == [1, 4, 6, 8]
    assert list(array_tasks("3-5,9,17...")) == [3, 4, 5, 9, 17]
    assert array_limit("1-9%4") == 4
    assert array_limit("1-9") is None
    with pytest.raises(ShapeError, match="task ids"):
        list(array_tasks("a-b"))


def test_details_have_times_of_suspensions_and_changes_of_size() -> None:
    resized = (
        "JobId=3 JobName=x ResizeTime=1795707939 StartTime=1795707933 EndTime=1795707999 "
        "SuspendTime=1795707942 SecsPreSuspend=6 LastSchedEval=1795707933\n"
    )
    plain = "JobId=4 JobName=SuspendTime=9 StartTime=1795707933 SuspendTime=None SecsPreSuspend=0\n"
    details = read_details({3: resized, 4: plain})
    assert details[3] == JobDetail(1795707942.0, 6.0, 1795707939.0)
    assert details[4] == JobDetail(None, 0.0, None)
    with pytest.raises(ShapeError, match="job 5: the field SuspendTime or SecsPreSuspend is miss"):
        read_details({5: "JobId=5 StartTime=1 SecsPreSuspend=0"})


def test_a_requeued_job_that_slurm_starts_first_is_pending() -> None:
    (job,) = read(changed(PENDING, state="EXPEDITING", arraytaskid="N/A"))
    assert job.pending
    assert job.started is None


def test_a_job_is_named_so_that_its_record_is_printed_alone() -> None:
    (task,) = read(changed(RUNNING, jobid="100", arrayjobid="100", arraytaskid="4"))
    (leader,) = read(changed(RUNNING, hetjobid="4"))
    (component,) = read(changed(RUNNING, jobid="5", arrayjobid="5", hetjobid="4"))
    assert [job.single for job in (task, leader, component)] == ["100_4", "4+0", "5"]


@pytest.mark.parametrize("detail", [JobDetail(9e9, 0.0, None), JobDetail(None, 0.0, 1.0)])
def test_impossible_times_of_changes_are_unknown(detail: JobDetail) -> None:
    timeline = JobTimeline(4)
    (running,) = read(RUNNING)
    now = 1795708000.0
    timeline.update(running, ("man",), None, now, now)
    (smaller,) = read(changed(RUNNING, state="SUSPENDED", resizetime="INVALID", tres_alloc="cpu=0"))
    timeline.update(smaller, ("man",), detail, now + 9.0, now + 9.0)
    (attempt,) = timeline.attempts
    assert not attempt.pauses
    assert [step.time for step in attempt.sizes] == [running.started, now + 9.0]


def test_a_suspension_that_ends_within_its_second_keeps_no_cores_away() -> None:
    timeline = JobTimeline(4)
    (running,) = read(RUNNING)
    begin = 1795707940.0
    (suspended,) = read(changed(RUNNING, state="SUSPENDED"))
    detail = JobDetail(begin, begin - 1795707933.0, None)
    timeline.update(suspended, ("man",), detail, begin, begin)
    assert timeline.attempts[0].paused(begin + 60.0) == 60.0
    timeline.update(running, ("man",), detail, begin + 0.5, begin + 0.5)
    assert timeline.attempts[0].paused(begin + 60.0) == 0.0


@pytest.mark.parametrize("known", ["1795707936", "1795707933"])
def test_a_requeued_job_holds_its_resources_until_it_has_left_its_nodes(known: str) -> None:
    timeline = JobTimeline(4)
    (running,) = read(RUNNING)
    timeline.update(running, ("man",), None, 1795707936.0, 1795707936.0)
    times = {"starttime": "N/A", "endtime": "N/A", "restartcnt": "1"}
    (leaving,) = read(changed(RUNNING, timeused="0:00", state="COMPLETING", **times))
    timeline.update(leaving, ("man",), None, 1795707939.0, 1795707939.0)
    assert timeline.attempts[0].end is None
    (waiting,) = read(changed(PENDING, restartcnt="1", submittime=known))
    timeline.update(waiting, ("man",), None, 1795707942.0, 1795707942.0)
    assert timeline.attempts[0].end == float(known)


@pytest.mark.parametrize(("before", "start"), [(4.0, 4.0), (1.0, 2.0), (-900.0, 2.0)])
def test_a_requeued_job_counts_if_only_its_remaining_processes_were_seen(
    before: float, start: float
) -> None:
    """A user can requeue a job at once, and compute in processes that ignore SIGTERM."""
    timeline = JobTimeline(4)
    requeued = {"starttime": "N/A", "endtime": "N/A", "restartcnt": "1"}
    requeued |= {"submittime": "1795707932"}
    (leaving,) = read(changed(RUNNING, timeused="0:00", state="COMPLETING", **requeued))
    reading = 1795707936.0
    if before < 0.0:
        reading += 900.0
        start = reading - 1795707930.0 - 60.0
    [assumed] = timeline.update(leaving, ("man",), None, reading, 1795707930.0 + before)
    assert (assumed.since, assumed.until) == (1795707930.0 + start, reading)
    assert not timeline.update(leaving, ("man",), None, reading + 2.0, reading)
    [attempt] = timeline.attempts
    assert (attempt.start, attempt.end) == (1795707930.0 + start, None)
    assert attempt.sizes[0].quantities == leaving.quantities
    (waiting,) = read(changed(PENDING, restartcnt="1", submittime=f"{reading + 3.0:.0f}"))
    assert not timeline.update(waiting, ("man",), None, reading + 4.0, reading + 2.0)
    assert [(attempt.start, attempt.end) for attempt in timeline.attempts] == [
        (1795707930.0 + start, reading + 3.0)
    ]
    assert timeline.restarts == 1


def test_a_job_holds_its_resources_while_its_processes_ignore_its_end() -> None:
    end = 1795707943
    (running,) = read(RUNNING)
    ends = {"timeused": "0:10", "endtime": str(end)}
    (leaving,) = read(changed(RUNNING, state="COMPLETING", **ends))
    (cancelled,) = read(changed(RUNNING, state="CANCELLED", **ends))
    unseen, quick, slow, paused, stuck = (JobTimeline(4) for _ in range(5))

    def ends_at(timeline: JobTimeline, job: Job, before: float, *seconds: float) -> float | None:
        """Show a job to a timeline some seconds after the job's end.

        Args:
            timeline: The timeline.
            job: The job.
            before: The time of the reading before, in seconds after the job's end.
            seconds: The times of readings.

        Returns:
            The seconds from the job's end to the attempt's end; None if the attempt is open.
        """
        for after in seconds:
            timeline.update(job, ("man",), None, end + after, end + before)
            before = after
        [attempt] = timeline.attempts
        return None if attempt.end is None else attempt.end - end

    for timeline in (unseen, quick, slow, paused, stuck):
        assert ends_at(timeline, running, -3.0, -1.0) is None
    assert ends_at(unseen, cancelled, -1.0, 1.0, 3.0) == 0.0
    assert ends_at(quick, leaving, -1.0, 0.5) is None
    assert ends_at(quick, cancelled, 0.5, 2.5, 4.5) == 2.0
    assert ends_at(slow, leaving, -1.0, 1.0, 3.0, 5.0) is None
    assert ends_at(slow, cancelled, 5.0, 7.0, 9.0) == 6.0
    assert ends_at(paused, leaving, -1.0, 90.0, 92.0) is None
    assert ends_at(paused, cancelled, 92.0, 94.0) == 92.0
    assert ends_at(stuck, leaving, -1.0, 3.0, 599.0) is None
    assert ends_at(stuck, leaving, 599.0, 601.0, 700.0) == 600.0
    assert ends_at(stuck, cancelled, 700.0, 800.0) == 600.0


def test_remaining_processes_of_many_short_jobs_count_for_their_true_time_on_average() -> None:
    """A user can end jobs at once, and compute for less than a pause between two readings."""
    end, every, stay = 1795707943, 2.0, 1.5
    ends = {"timeused": "0:10", "endtime": str(end)}
    (leaving,) = read(changed(RUNNING, state="COMPLETING", **ends))
    (cancelled,) = read(changed(RUNNING, state="CANCELLED", **ends))
    counted = []
    for first in range(20):  # tenths of a second from the end to the first reading
        timeline, now = JobTimeline(4), end + first / 10
        for place in range(3):
            time = now + place * every
            job = leaving if time < end + stay else cancelled
            timeline.update(job, ("man",), None, time, time - every)
        [attempt] = timeline.attempts
        assert attempt.end is not None
        counted.append(attempt.end - end)
    assert sum(counted) / len(counted) == pytest.approx(stay)


def test_a_job_whose_end_slurmctld_forgot_is_open_until_it_ends_again() -> None:
    end = 1795707943
    (running,) = read(RUNNING)
    (leaving,) = read(changed(RUNNING, state="COMPLETING", timeused="0:10", endtime=str(end)))
    later = {"state": "CANCELLED", "timeused": "1:40", "endtime": str(end + 90)}
    (cancelled,) = read(changed(RUNNING, **later))
    timeline = JobTimeline(4)
    for after, job in ((1.0, leaving), (3.0, running), (5.0, running), (91.0, cancelled)):
        timeline.update(job, ("man",), None, end + after, end + after - 2.0)
        [attempt] = timeline.attempts
        assert attempt.end == (end + 90 if job is cancelled else None)


def test_an_ended_job_that_stages_out_files_holds_no_nodes() -> None:
    """Slurm shows a job with processes on its nodes as completing."""
    ends = {"timeused": "1:01", "endtime": "1795707994"}
    (job,) = read(changed(RUNNING, state="STAGE_OUT", **ends))
    assert (job.ended, job.leaving) == (1795707994.0, False)
    requeued = {"timeused": "0:00", "starttime": "N/A", "endtime": "N/A", "restartcnt": "1"}
    (job,) = read(changed(RUNNING, state="STAGE_OUT", **requeued))
    assert (job.started, job.leaving) == (None, True)


def test_a_node_has_resources_partitions_and_the_time_of_its_reason() -> None:
    (node,) = read_nodes(NODE)
    assert (node.name, node.state) == ("n4", "DOWN")
    assert node.quantities == Quantities.parse("cpus:40;mem:60000;gpus:4")
    assert (node.partitions, node.changed) == (("main", "all"), 1795707968.0)


@pytest.mark.parametrize(
    ("state", "counts"),
    [
        ("IDLE", True), ("MIXED+NOT_RESPONDING", True), ("ALLOCATED+DRAIN", True),
        ("IDLE+DRAIN", False), ("DOWN", False), ("DOWN+CLOUD", False), ("FUTURE", False),
        ("IDLE+CLOUD+POWERED_DOWN", True), ("UNKNOWN", True), ("UNKNOWN+DRAIN", False),
    ],
)  # fmt: skip
def test_a_node_counts_while_it_runs_or_may_start_jobs(
    state: str,
    counts: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    (node,) = read_nodes(NODE.replace("DOWN*+DRAIN+NOT_RESPONDING", state))
    assert node.counts == counts


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("State=DOWN*+DRAIN+NOT_RESPONDING", "State=ASLEEP", "node n4: the State 'ASLEEP'"),
        ("CfgTRES=", "Cfg=", "node n4: the field CfgTRES is missing"),
        ("cpu=40,", "cpu=some,", "node n4: CfgTRES: cpus are not numbers"),
    ],
)
def test_an_unknown_form_of_a_node_is_an_error_that_names_the_field(
    old: str, new: str, message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        read_nodes(NODE.replace(old, new))
