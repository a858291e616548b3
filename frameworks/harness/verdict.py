"""Judges an experiment: compares measured with expected values, and checks each claim."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from allocator.theory.divisible import FluidTrajectory, FluidUser, fluid
from frameworks.experiment import (
    AVERAGED_S,
    CommitmentAt,
    Experiment,
    LargestLead,
    NoLater,
    Phase,
    PhasesAgree,
    TaskShares,
)
from frameworks.harness.measurement import Measurement, last, mean

STEP = 0.5
"""Seconds between two samples of the expected values."""


_MAX_IN_OFFERS = 0.1
"""Largest fraction of allocated CPUs that may be in unanswered offers.

Above this fraction, the machine is too slow for the chosen speed.
"""


@dataclass(frozen=True, slots=True)
class UserResult:
    """Measured and expected CPUs of one user in one phase."""

    cpus: float
    """Mean cores over the last 60 s of the phase."""
    expected_cpus: float
    """Mean cores over the same time in the divisible optimum."""
    commitment: float
    """Dominant commitment at the end of the phase."""
    peak_cpus: float


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """Results of all users in one phase, by user name."""

    start: float
    end: float
    users: dict[str, UserResult]


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim in words, and whether the measurement confirms it."""

    claim: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a run: measured values per phase, and whether they agree with the paper."""

    experiment: str
    policy: str
    seed: int
    speed: float
    utilization: float
    """Mean fraction of the CPUs that running tasks use, from the cluster's first full load on."""
    in_offers: float
    """Mean fraction of the allocated CPUs that are in unanswered offers, not in running tasks."""
    agrees: bool
    phases: list[PhaseResult]
    completions: dict[str, float]
    """By user: seconds from the user's start to its last task's end.

    Unfinished users are left out.
    """
    waits: dict[str, float]
    """By user: mean seconds from the submission of a task to its start. Empty without Slurm."""
    claims: list[Finding]

    @property
    def too_slow(self) -> bool:
        """True if too many CPUs were in unanswered offers, because frameworks answered too slowly.

        The measured values then do not show what the policy would do.
        """
        return self.in_offers > _MAX_IN_OFFERS

    def summary(self) -> dict[str, Any]:
        """Return the content of summary.json."""
        return asdict(self)


def expectation(experiment: Experiment) -> FluidTrajectory:
    """Compute the divisible optimum over time for an experiment (SDRF paper, Eq. 10 and 12).

    The divisible optimum is the ideal allocation, as if tasks could be divided.
    """
    capacity = experiment.cluster.capacity
    assert experiment.tasks is not None
    shares = experiment.tasks.quantities.shares(capacity)
    largest = max(shares.values())
    users = [
        FluidUser(
            demand=[share / largest for share in shares.values()],
            start=user.start,
            weight=user.weight,
            commitment=user.commitment,
        )
        for user in experiment.users
    ]
    tau = experiment.create_policy().tau
    return fluid(users, tau=tau, end=experiment.duration, step=STEP)


def expected_cpus(experiment: Experiment, trajectory: FluidTrajectory) -> Measurement:
    """Convert the divisible optimum over time to a `Measurement`, to compare both."""
    capacity = experiment.cluster.capacity
    cpus = list(capacity).index("cpus")
    total = capacity["cpus"] / 1000
    expected = Measurement()
    for index, user in enumerate(experiment.users):
        expected.cpus[user.name] = {
            time: total * held[index][cpus]
            for time, held in zip(trajectory.times, trajectory.allocations, strict=True)
        }
        expected.commitments[user.name] = {
            time: max(commitments[index])
            for time, commitments in zip(trajectory.times, trajectory.commitments, strict=True)
        }
    return expected


def judge(
    experiment: Experiment, measured: Measurement, expected: Measurement, *, seed: int, speed: float
) -> Verdict:
    """Compare a run's measurement with the divisible optimum and with the experiment's claims.

    Args:
        experiment: The experiment.
        measured: The measured values.
        expected: The values in the divisible optimum, from `expected_cpus`.
        seed: Seed of the run.
        speed: Seconds of the master's time for each second of real time.
    """
    phases = [_phase(phase, experiment, measured, expected) for phase in experiment.phases]
    utilization = _utilization(experiment, measured)
    findings = list(_findings(experiment, measured, phases, utilization))
    return Verdict(
        experiment=experiment.name,
        policy=str(experiment.policy["name"]),
        seed=seed,
        speed=speed,
        utilization=round(utilization, 4),
        in_offers=round(_in_offers(experiment, measured), 4),
        agrees=all(finding.holds for finding in findings),
        phases=phases,
        completions={name: round(seconds, 3) for name, seconds in measured.completions.items()},
        waits={name: round(seconds, 3) for name, seconds in measured.waits.items()},
        claims=findings,
    )


def _phase(
    phase: Phase, experiment: Experiment, measured: Measurement, expected: Measurement
) -> PhaseResult:
    settled = max(phase.end - AVERAGED_S, phase.start)
    users = {}
    for user in experiment.users:
        held = measured.cpus.get(user.name, {})
        values = [value for time, value in held.items() if phase.start <= time < phase.end]
        users[user.name] = UserResult(
            cpus=round(mean(held, settled, phase.end), 3),
            expected_cpus=round(mean(expected.cpus.get(user.name, {}), settled, phase.end), 3),
            commitment=round(last(measured.commitments.get(user.name, {}), phase.end), 4),
            peak_cpus=max(values, default=0.0),
        )
    return PhaseResult(phase.start, phase.end, users)


def _utilization(experiment: Experiment, measured: Measurement) -> float:
    """Return the mean fraction of CPUs in use, from the time when the cluster was first 97 % full.

    If it never was 97 % full, the result is the mean over the whole experiment.
    """
    total = experiment.cluster.cores
    full = [time for time, used in measured.in_use.items() if used >= 0.97 * total]
    if not full:
        return mean(measured.in_use, 0.0, experiment.duration) / total
    return mean(measured.in_use, min(full), experiment.duration) / total


def _in_offers(experiment: Experiment, measured: Measurement) -> float:
    """Return the mean fraction of allocated CPUs that unanswered offers hold, not running tasks.

    With an external master, only running tasks are known, and the result is 0.
    """
    held = sum(mean(series, 0.0, experiment.duration) for series in measured.cpus.values())
    running = mean(measured.in_use, 0.0, experiment.duration)
    return max(1.0 - running / held, 0.0) if held else 0.0


def _findings(
    experiment: Experiment,
    measured: Measurement,
    phases: list[PhaseResult],
    utilization: float,
) -> Iterator[Finding]:
    for claim in experiment.claims:
        if isinstance(claim, PhasesAgree):
            furthest = max(
                abs(user.cpus - user.expected_cpus)
                for phase in phases
                for user in phase.users.values()
            )
            yield Finding(
                f"CPUs are within {claim.within_cpus:g} of the divisible optimum in all phases "
                f"(furthest: {furthest:.1f})",
                furthest <= claim.within_cpus,
            )
        elif isinstance(claim, CommitmentAt):
            if not measured.commitments:
                continue  # an external master does not report commitments
            commitment = last(measured.commitments.get(claim.user, {}), claim.at)
            yield Finding(
                f"{claim.user}'s commitment is {claim.value:g} ± {claim.within:g} at "
                f"{claim.at:g} s (measured: {commitment:.3f})",
                abs(commitment - claim.value) <= claim.within,
            )
        elif isinstance(claim, LargestLead):
            yield _lead(claim, experiment.phases[claim.phase - 1], measured)
        elif isinstance(claim, TaskShares):
            yield _task_shares(claim, experiment, measured)
        elif isinstance(claim, NoLater):
            continue  # about several runs, see `comparison`
        else:
            yield Finding(
                f"more than {claim.above:.0%} of the CPUs are in use after ramp-up "
                f"(measured: {utilization:.1%})",
                utilization > claim.above,
            )


def _task_shares(claim: TaskShares, experiment: Experiment, measured: Measurement) -> Finding:
    parts, holds = [], True
    for user in experiment.users:
        if user.name not in claim.shares:
            continue
        demand = experiment.tasks_of(user).quantities
        alone = experiment.cluster.monopoly(demand)
        cpus = mean(measured.running.get(user.name, {}), claim.start, claim.end)
        tasks = cpus * 1000 / demand["cpus"]
        parts.append(f"{user.name}: {tasks / alone:.3f}, {tasks:.1f} of {alone} tasks")
        holds &= abs(tasks - claim.shares[user.name] * alone) <= claim.within_tasks
    expected = ", ".join(f"{name} {share:.3f}" for name, share in claim.shares.items())
    return Finding(
        f"task shares are {expected} from {claim.start:g} to {claim.end:g} s, within "
        f"{claim.within_tasks:g} tasks (measured: {'; '.join(parts)})",
        holds,
    )


def _lead(claim: LargestLead, phase: Phase, measured: Measurement) -> Finding:
    held = measured.cpus.get(claim.user, {})
    lead = max(
        (
            cpus - max(measured.cpus.get(rival, {}).get(time, 0.0) for rival in claim.over)
            for time, cpus in held.items()
            if phase.start <= time < phase.end
        ),
        default=0.0,
    )
    bounds = [f"at least {claim.at_least:g}"] if claim.at_least is not None else []
    bounds += [f"at most {claim.at_most:g}"] if claim.at_most is not None else []
    return Finding(
        f"{claim.user}'s largest lead over {', '.join(claim.over)} in phase {claim.phase} is "
        f"{' and '.join(bounds)} CPUs (measured: {lead:g})",
        (claim.at_least is None or lead >= claim.at_least)
        and (claim.at_most is None or lead <= claim.at_most),
    )
