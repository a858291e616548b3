"""Sentences about jobs: the reasons why they are pending, and Slurm's words."""

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from allocator.contract import admin_pb2 as admin
from allocator.cooperative import Cooperative
from allocator.formatting import called, counted
from allocator.slurm.reasons import BRIEFLY, GROUP_ORDER
from allocator.users.wording import PageWords, Vocabulary, Wording

if TYPE_CHECKING:
    from allocator.slurm.adapter import JobWait, SlurmAdapter
    from allocator.slurm.jobs import Job

_MOST_PARTITIONS = 5
"""Maximum number of partitions in one sentence."""


class SlurmWording(Wording):
    """Texts about jobs, the clients of Slurm.

    Args:
        adapter: The adapter, for the jobs of users.
    """

    vocabulary = Vocabulary(
        machine="node",
        wants="has pending jobs",
        want="have pending jobs",
        wants_nothing="has no pending jobs",
        assumed="has some",
        gets_nothing="starts no jobs",
        passed_over="none of its pending jobs can start, so it is passed over",
        out_of_contact="slurmctld has not answered",
        delays="Limits, dependencies, reservations and backfilling",
        remedy="cancel jobs; for a lasting change, set limits in Slurm, such as GrpTRES",
        lasting_wait="job can never start",
        page=PageWords(
            machines="nodes",
            applications="jobs",
            wants="has pending jobs",
            trail="Latest starts",
            connected="Slurm answers.",
            disconnected="Slurm does not answer. It continues with the latest order.",
            clock="this machine's",
        ),
    )
    reasons: ClassVar[Mapping[str, str]] = {
        reason: BRIEFLY[reason] for reason in ("no_controller", *GROUP_ORDER)
    }

    def __init__(self, adapter: "SlurmAdapter") -> None:
        self._adapter = adapter

    @override
    def why_inactive(self, user: str) -> str:
        return "it has no pending jobs"

    @override
    def about_clients(self, user: str) -> Cooperative[list[str]]:
        yield from ()  # one step
        numbers = self._adapter.pending_by_group(user)
        if not numbers:
            return []
        parts = [f"{BRIEFLY[group]}: {numbers[group]}" for group in GROUP_ORDER if group in numbers]
        jobs = counted(sum(numbers.values()), "pending job")
        words = [f"It has {jobs} or arrays, by the reason that Slurm gives: {', '.join(parts)}."]
        partitions = list(self._adapter.constraints().get(user, {}))[:_MOST_PARTITIONS]
        if partitions:
            words.append(f"Its pending jobs may run in {', '.join(partitions)}.")
        return words

    @override
    def add_waits(
        self,
        explanation: admin.Explanation,
        waits: Sequence["JobWait"],
        idle_since: Mapping[Hashable, float],
        *,
        starved: bool,
    ) -> None:
        del idle_since, starved  # Slurm says when a job was submitted, and makes no offers
        by_code: dict[str, list[JobWait]] = {}
        for wait in waits:
            job = wait.job
            explanation.reasons.add(
                framework=str(job.number), name=job.qos, role=job.account, reason=wait.reason
            )
            by_code.setdefault(job.reason, []).append(wait)
        for code, same in by_code.items():
            names = ", ".join(_name(wait.job) for wait in same)
            subject = f"Its job {names} is" if len(same) == 1 else f"Its jobs {names} are"
            explanation.words.append(
                f"{subject} pending: {BRIEFLY[same[0].reason]}; Slurm says "
                f"{code}{_ahead(explanation, same[0])}."
            )

    @override
    def about_gaps(self) -> str:
        return (
            "has a job that is larger than other users' jobs: smaller jobs may fill every gap. "
            "Slurm's backfilling (SchedulerType=sched/backfill) keeps room for the first jobs of "
            "the order."
        )

    @override
    def wait_details(self, wait: "JobWait") -> dict[str, str]:
        job = wait.job
        return {
            "job": str(job.number),
            "user": job.user,
            "account": job.account,
            "reason": wait.reason,
            "because": job.reason,
        }

    @override
    def about_unknown_user(self, user: str) -> Cooperative[str]:
        yield
        return "; a user is known from its first job on"


def _name(job: "Job") -> str:
    """Return the name by which Slurm's commands show a job: `123`, or `100_[4-9]` of an array."""
    if not job.tasks:
        return str(job.number)
    return f"{job.array}_{job.tasks}" if job.tasks.isdecimal() else f"{job.array}_[{job.tasks}]"


def _ahead(explanation: admin.Explanation, wait: "JobWait") -> str:
    """Return a clause about the user with the jobs before; empty without such a user."""
    if wait.reason not in {"turn", "resources"}:
        return ""
    ahead = explanation.above[0].ahead.user if explanation.above else explanation.ahead.user
    return f"; {called(ahead)} is served first" if ahead else ""
