"""Policies by name, and error messages about their parameters."""

import math

import pytest
from pydantic import ValidationError

from allocator.fairness import bounds, durations, policies
from allocator.fairness.machines import Machines
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities

MACHINES = {"m1": "cpus:4;mem:8", "m2": "cpus:12;mem:4"}


def test_every_policy_is_found_by_its_name() -> None:
    assert {"drf", "sdrf", "tsf", "stsf", "karma"} <= set(policies.ours()) <= set(policies.names())
    assert policies.create("drf", {}).name == "drf"


def test_delta_and_half_life_are_equivalent_parameters() -> None:
    by_delta = policies.create("sdrf", {"delta": 0.5})
    for half_life in (1, "1s"):
        assert policies.create("sdrf", {"half_life": half_life}).tau == pytest.approx(by_delta.tau)
    assert policies.create("sdrf", {"half_life": "10m"}).tau == pytest.approx(600 / math.log(2))
    assert policies.create("drf", {}).tau is None


@pytest.mark.parametrize(
    ("name", "parameters", "complaint"),
    [
        ("lottery", {}, "policy 'lottery' is unknown; there are: cdrf, cmmf, drf"),
        ("drf", {"delta": 0.9}, "policy 'drf': delta: there is no such setting"),
        ("sdrf", {}, "give either 'delta' \\(per second\\) or 'half_life'"),
        ("sdrf", {"delta": 0.9, "half_life": 5}, "give either"),
        ("sdrf", {"delta": 1.0}, "switch long-term fairness off"),
        ("sdrf", {"delta": math.nan}, "switch long-term fairness off"),
        ("sdrf", {"half_life": "soon"}, "'soon' is not a duration"),
        ("sdrf", {"delta": 0.9, "form": "book"}, "'journal' or 'thesis'"),
        ("sdrf", {"detla": 0.9}, "parameters: ranking, delta, half_life, form"),
        ("volcano", {"half_life": 0}, "switch long-term fairness off"),
        ("kueue-afs", {"resource_weights": "cpus=1,mem"}, "'mem' is not RESOURCE=WEIGHT"),
        ("kueue-afs", {"resource_weights": "=1"}, "'=1' is not RESOURCE=WEIGHT"),
        ("slurm-fair-tree", {"billing": "cpus=-0.5"}, "'cpus=-0.5' is not RESOURCE=WEIGHT"),
        ("slurm-fair-tree", {"billing": "cpus=inf"}, "'cpus=inf' is not RESOURCE=WEIGHT"),
        ("slurm-fair-tree", {"billing": "cpus=0,mem=0"}, "gives no resource a weight above 0"),
    ],
)
def test_a_wrong_parameter_is_named_with_the_valid_values(
    name: str, parameters: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        policies.create(name, parameters)


def ours(name: str) -> policies.Policy:
    """Return a policy, with a half-life if the policy requires one."""
    return policies.create(name, {"half_life": 60} if name in {"sdrf", "stsf"} else {})


def two(policy: policies.Policy, first: str = "a", task: str = "cpus:2;mem:1") -> Pool[str]:
    """Return a pool of two users with allocations and commitments, after some time."""
    machines: Machines[str] = Machines()
    for name, text in MACHINES.items():
        machines.put(name, Quantities.parse(text))
    capacity = Quantities.parse("cpus:16;mem:12")
    pool: Pool[str] = Pool(policy, capacity=capacity, machines=machines)
    for user in "ab":
        pool.add(user, weight=2.0, commitment={"mem": 0.25})
    for user in sorted("ab", key=lambda user: user != first):
        pool.set_active(user, True)
        pool.set_demand(user, Quantities.parse(task))
        pool.allocate(user, Quantities.parse("cpus:3;mem:1"))
    pool.advance(30.0)
    return pool


@pytest.mark.parametrize("name", policies.ours())
def test_priorities_depend_on_exactly_the_inputs_that_a_policy_declares(name: str) -> None:
    policy = ours(name)
    pool = two(policy)
    standing = pool.standing("b")
    other_tasks = two(policy, task="mem:3").standing("b")
    assert (other_tasks.measured != standing.measured) == policy.counts_tasks
    assert (other_tasks.task_share is not None) == policy.counts_tasks
    other_queue = two(policy, first="b").standing("b")
    assert (other_queue.priority != standing.priority) == policy.queues
    owed = max(standing.commitments.get(name, 0.0) for name in standing.measured)
    by_shares = (max(standing.measured.values()) + (owed if policy.tau else 0.0)) / 2.0
    assert (standing.priority == pytest.approx(by_shares)) == policy.goes_by_shares
    machine, held = Quantities.parse("cpus:1"), Quantities.parse("cpus:0.5")
    order = list(pool.order_on(machine, {next(iter(pool)): held}))
    assert (order != list(pool)) == policy.per_machine


@pytest.mark.parametrize("name", policies.ours())
def test_in_a_cluster_without_resources_no_user_has_a_share(name: str) -> None:
    pool: Pool[str] = Pool(ours(name))
    pool.add("a", weight=2.0)
    pool.set_active("a", True)
    pool.set_demand("a", Quantities.parse("cpus:1"))
    pool.allocate("a", Quantities.parse("cpus:1"))
    pool.advance(10.0)
    standing = pool.standing("a")
    assert set(standing.measured.values()) <= {0.0}
    # Queue position; missing guarantee; half a slot of a thousand, divided by the weight.
    expected = {"fifo": 1.0, "karma": -1.0, "htcondor": 0.00025}
    assert standing.priority == expected.get(name, 0.0)


def test_of_users_with_equal_allocations_on_a_machine_the_one_with_more_weight_is_first() -> None:
    pool = two(policies.create("per-machine-drf", {}))
    pool.set_weight("b", 3.0)
    machine = Quantities.parse("cpus:4")
    held = dict.fromkeys("ab", Quantities.parse("cpus:1"))
    assert list(pool.order_on(machine, held)) == ["b", "a"]


@pytest.mark.parametrize("name", ["sdrf", "volcano", "dynamic-drf"])
def test_only_a_live_tree_predicts_when_the_user_with_less_use_is_passed(name: str) -> None:
    observed = []
    for ranking in ("live-tree", "scan"):
        given: dict[str, object] = {"ranking": ranking}
        pool: Pool[str] = Pool(
            policies.create(name, given | ({} if name == "dynamic-drf" else {"half_life": 60})),
            capacity=Quantities.parse("cpus:4"),
        )
        for user in "ab":
            pool.add(user)
            pool.set_active(user, True)
        pool.allocate("a", pool.capacity)
        pool.advance(100.0)
        pool.release("a", pool.capacity)
        pool.allocate("b", Quantities.parse("cpus:1"))
        observed.append((list(pool), [crossing[1:] for crossing in pool.crossings()]))
    assert observed == [(["b", "a"], [("b", "a")]), (["b", "a"], [])]


def test_default_parameters_are_those_of_the_emulated_schedulers() -> None:
    def of(name: str) -> dict[str, object]:
        kept = {"half_life", "slots", "alpha", "minimum"}
        return {key: value for key, value in ours(name).model_dump().items() if key in kept}

    assert of("htcondor") == {"half_life": 86_400.0, "slots": 1000.0}
    assert of("kueue-afs") == of("slurm-fair-tree") == {"half_life": 7 * 86_400.0}
    assert of("volcano") == {"half_life": 4 * 3600.0}
    assert of("karma") == {"alpha": 0.5}
    assert of("dynamic-drf") == of("dynamic-mmf") == {"alpha": 0.0}
    assert of("yarn-fair") == {"minimum": 0.0}


@pytest.mark.parametrize("name", policies.ours())
def test_parameters_have_descriptions_and_are_immutable(name: str) -> None:
    policy = ours(name)
    for parameter, field in type(policy).model_fields.items():
        assert field.description
        with pytest.raises(ValidationError, match="frozen"):
            setattr(policy, parameter, getattr(policy, parameter))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("1.5 m", 90.0), (" 1h ", 3600.0), ("2d", 172_800.0), ("h", None), ("1", None)],
)
def test_durations_are_read_in_the_usual_units(text: str, seconds: float | None) -> None:
    assert durations.read(text) == seconds


@pytest.mark.parametrize("weight", [1e-6, 1e6])
def test_weights_are_from_a_millionth_to_a_million(weight: float) -> None:
    assert bounds.in_range("a", weight) == weight
    for beyond in (0.999e-6, 1.000001e6, math.nan):
        with pytest.raises(ValueError, match="is not a number from 1e-06 to 1e\\+06"):
            bounds.in_range("a", beyond)
