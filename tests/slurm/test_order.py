"""The order of pending jobs follows progressive filling, and passes over jobs that cannot start."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.fairness.policies import create
from allocator.fairness.quantities import NO_QUANTITIES, Quantities
from allocator.slurm.jobs import ClusterNode, Job
from allocator.slurm.order import Order, order_jobs
from allocator.slurm.shares import ShareTree
from allocator.slurm.timelines import UserPath
from allocator.users.settings import UserSettings
from tests.counted import counted
from tests.examples import examples

CAPACITY = Quantities.parse("cpus:100;mem:10000;gpus:8")
NODES = {
    "n1": ClusterNode("n1", "IDLE", frozenset(), CAPACITY, ("main",), None),
    "m1": ClusterNode("m1", "IDLE", frozenset(), CAPACITY, ("other",), None),
}


def job(number: int, user: str, **changes: object) -> Job:
    plain = Job(
        number=number, array=number, tasks="", heterogeneous=0, user=user, account="",
        partitions=("main",), qos="", state="PENDING", reason="Priority", priority=1, nice=0,
        submitted=0.0, eligible=0.0, started=None, ended=None, resized=False, restarts=0,
        quantities=Quantities.parse("cpus:4;mem:100"),
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]


def tree(users: dict[UserPath, str], policy: str = "sdrf") -> ShareTree:
    parameters = {"half_life": 60} if policy == "sdrf" else {}
    shares = ShareTree(UserSettings(create(policy, parameters), tree=True), 0.0)
    shares.set_capacity(CAPACITY)
    for path, held in users.items():
        shares.add(path)
        shares.change(path, NO_QUANTITIES, Quantities.parse(held))
    shares.advance(30.0)
    return shares


def ordered(
    shares: ShareTree,
    jobs: Iterable[Job],
    nodes: dict[str, ClusterNode] = NODES,
    **options: int,
) -> Order:
    return order_jobs(
        shares,
        [(waiting, (waiting.user,)) for waiting in jobs],
        {},
        nodes,
        {},
        ahead=options.get("ahead", 100),
        tasks_ahead=options.get("tasks_ahead", 100),
        contested=bool(options.get("contested", False)),
    )


def targets(order: Order) -> list[str]:
    return [placed.target for placed in order.placed]


demands = st.sampled_from(["cpus:1;mem:100", "cpus:8;mem:50", "cpus:2;mem:900"])
held = st.sampled_from(["", "cpus:3;mem:10", "cpus:30;mem:500", "cpus:5;mem:4000"])


@examples(60)
@given(
    st.sampled_from(["sdrf", "drf", "dynamic-drf"]),
    st.lists(held, min_size=3, max_size=3),
    st.lists(st.tuples(st.sampled_from("abc"), demands), max_size=25),
)
def test_users_take_turns_as_in_progressive_filling(
    policy: str, allocations: list[str], wanted: list[tuple[str, str]]
) -> None:
    shares = tree({(name,): text for name, text in zip("abc", allocations, strict=True)}, policy)
    jobs = [
        job(number, user, quantities=Quantities.parse(demand))
        for number, (user, demand) in enumerate(wanted, 1)
    ]
    pool = shares.pools[()].twin()
    queues = {name: [waiting for waiting in jobs if waiting.user == name] for name in "abc"}
    expected = []
    while any(queues.values()):
        for name, queue in queues.items():
            pool.set_active(name, bool(queue))
        first = next(iter(pool))
        waiting = queues[first].pop(0)
        expected.append(str(waiting.number))
        pool.allocate(first, waiting.quantities)
    assert targets(ordered(shares, jobs)) == expected


def test_tasks_of_arrays_take_turns_with_other_users() -> None:
    shares = tree({("a",): "", ("b",): ""})
    jobs = [job(10, "a", tasks="0-9"), job(20, "b", tasks="3,7-8%2")]
    assert targets(ordered(shares, jobs))[:5] == ["10_0", "20_3", "10_1", "20_7", "10_2"]
    assert "20_8" not in targets(ordered(shares, jobs)), "only two tasks may run at a time"
    assert targets(ordered(shares, jobs, tasks_ahead=1)) == ["10_0", "20_3"]


def test_a_heterogeneous_job_takes_one_turn_for_all_components() -> None:
    shares = tree({("a",): "", ("b",): ""})
    jobs = [
        job(1, "a", heterogeneous=1, quantities=Quantities.parse("cpus:2")),
        job(2, "a", heterogeneous=1, quantities=Quantities.parse("cpus:60")),
        *(job(number, "b") for number in range(3, 20)),
        job(30, "a"),
    ]
    placed = targets(ordered(shares, jobs))
    assert placed[:2] == ["1", "2"]
    assert placed.index("30") > placed.index("17"), "a has had 62 cores, b only 60"


def test_each_component_of_a_heterogeneous_job_takes_a_place() -> None:
    jobs = [
        job(leader + number, "a", heterogeneous=leader)
        for leader in range(100, 1100, 100)
        for number in range(30)
    ]
    order = ordered(tree({("a",): "cpus:0"}), jobs, ahead=100)
    assert len(order.placed) == 120, "100 places, in whole jobs"
    waiting = [replace(component, reason="Licenses") for component in jobs]
    order = ordered(tree({("a",): "cpus:0"}), waiting, ahead=100)
    assert len(order.placed) == 30, "the first 20 that wait for licenses, in whole jobs"


def test_each_component_of_a_heterogeneous_job_takes_a_turn_of_its_own_user() -> None:
    shares = tree({("lab",): "", ("phys",): "", ("chem",): ""})
    jobs = []
    for leader in range(10, 30, 2):
        small, large = Quantities.parse("cpus:1"), Quantities.parse("cpus:7")
        jobs.append(job(leader, "lab", heterogeneous=leader, quantities=small))
        jobs.append(job(leader + 1, "phys", heterogeneous=leader, quantities=large))
    jobs += [job(number, "chem", quantities=Quantities.parse("cpus:8")) for number in range(50, 60)]
    jobs += [job(60, "lab", quantities=Quantities.parse("cpus:1"))]
    order = ordered(shares, jobs)
    users = [placed.user[0] for placed in order.placed if placed.target != "60"]
    cores = [7 * users[:turn].count("phys") - 8 * users[:turn].count("chem") for turn in range(27)]
    assert max(map(abs, cores)) <= 8, "phys and chem have equal shares, whoever leads the jobs"
    together = [placed.target for placed in order.placed if placed.job.heterogeneous]
    assert together == [str(number) for number in range(10, 30)]
    assert {placed.target: placed.job.number for placed in order.placed} == {
        str(waiting.number): waiting.number for waiting in jobs
    }


def test_a_heterogeneous_job_is_as_urgent_as_its_last_component() -> None:
    jobs = [
        job(1, "a", heterogeneous=1, priority=9),
        job(2, "a", heterogeneous=1, priority=3),
        job(3, "a", priority=5),
    ]
    assert targets(ordered(tree({("a",): ""}), jobs)) == ["3", "1", "2"]


def test_a_heterogeneous_job_beyond_the_places_of_one_of_its_users_has_no_place() -> None:
    shares = tree({("a",): "", ("b",): ""})
    jobs = [job(number, "b") for number in range(1, 5)]
    jobs += [job(10, "a", heterogeneous=10), job(11, "b", heterogeneous=10)]
    assert "10" not in targets(ordered(shares, jobs, ahead=4))


@pytest.mark.parametrize("reason", ["Dependency", "JobHeldUser", "BeginTime", "AssocMaxJobsLimit"])
def test_a_job_that_cannot_start_is_passed_over_and_holds_nobody_back(reason: str) -> None:
    shares = tree({("a",): "", ("b",): "cpus:50"})
    order = ordered(shares, [job(1, "a", reason=reason), job(2, "a"), job(3, "b")])
    assert targets(order) == ["2", "3"]
    assert order.passed_over == {reason: 1}


def test_a_job_that_waits_for_a_common_limit_keeps_its_place_without_counting_as_started() -> None:
    shares = tree({("a",): "", ("b",): ""})
    jobs = [job(1, "a", reason="Licenses"), job(2, "a"), job(3, "b"), job(4, "a"), job(5, "b")]
    assert targets(ordered(shares, jobs)) == ["1", "2", "3", "4", "5"]


def test_jobs_that_compete_for_other_resources_do_not_hold_back_jobs_of_their_user() -> None:
    shares = tree({("a",): "", ("b",): ""})
    gpus = Quantities.parse("cpus:1;gpus:4")
    jobs = [job(number, "a", quantities=gpus) for number in range(1, 5)]
    jobs += [job(10, "a"), job(11, "b")]
    placed = targets(ordered(shares, jobs))
    assert placed.index("10") < 3, "a turn with GPUs is no turn with cores"


def test_jobs_of_partitions_without_common_nodes_are_ordered_independently() -> None:
    shares = tree({("a",): "", ("b",): ""})
    jobs = [job(number, "a") for number in range(1, 6)]
    jobs += [job(number, "a", partitions=("other",)) for number in range(11, 14)]
    jobs += [job(20, "b", partitions=("other",))]
    alone = [waiting for waiting in jobs if waiting.partitions == ("other",)]
    others = [target for target in targets(ordered(shares, jobs)) if int(target) > 10]
    assert others == targets(ordered(shares, alone))


def test_slurms_own_priorities_order_the_jobs_of_one_user() -> None:
    shares = tree({("a",): ""})
    jobs = [job(1, "a", priority=5), job(2, "a", priority=9), job(3, "a", priority=5)]
    assert targets(ordered(shares, jobs)) == ["2", "1", "3"]


def test_nice_orders_the_jobs_of_one_user_although_priorities_are_at_least_one() -> None:
    jobs = [job(1, "a", nice=5), job(2, "a", nice=1), job(3, "a", nice=5, priority=-4)]
    assert targets(ordered(tree({("a",): ""}), jobs)) == ["2", "1", "3"]


def test_accounts_share_before_their_users() -> None:
    users: dict[UserPath, str] = {("x", "a"): "cpus:40", ("x", "b"): "", ("y", "c"): "cpus:10"}
    shares = tree(users)
    paths = {"a": ("x", "a"), "b": ("x", "b"), "c": ("y", "c")}
    jobs = [job(1, "a"), job(2, "b"), job(3, "c"), job(4, "b")]
    order = order_jobs(
        shares,
        [(waiting, paths[waiting.user]) for waiting in jobs],
        {},
        NODES,
        {},
        ahead=10,
        tasks_ahead=10,
    )
    assert targets(order) == ["3", "2", "4", "1"], "account y first; inside x, b before a"


def test_only_so_many_jobs_as_may_start_are_in_the_order() -> None:
    shares = tree({("a",): "", ("b",): ""})
    jobs = [job(number, "ab"[number % 2]) for number in range(1, 50)]
    assert len(targets(ordered(shares, jobs, ahead=7))) == 7


@examples(60)
@given(st.lists(st.tuples(st.sampled_from("abc"), demands, st.booleans()), max_size=25))
def test_jobs_that_cannot_start_do_not_change_the_order_of_jobs_that_can(
    wanted: list[tuple[str, str, bool]],
) -> None:
    shares = tree({("a",): "", ("b",): "cpus:3;mem:10", ("c",): "cpus:5;mem:4000"})
    jobs = [
        job(
            number,
            user,
            quantities=Quantities.parse(demand),
            reason="Priority" if ready else "ReqNodeNotAvail",
        )
        for number, (user, demand, ready) in enumerate(wanted, 1)
    ]
    startable = [waiting for waiting in jobs if waiting.reason == "Priority"]
    numbers = {str(waiting.number) for waiting in startable}
    placed = targets(ordered(shares, jobs, ahead=6))
    assert [target for target in placed if target in numbers] == targets(
        ordered(shares, startable, ahead=6)
    )
    assert len(placed) <= 18


@pytest.mark.parametrize("reason", ["ReqNodeNotAvail", "Licenses", "AssocGrpCpuLimit"])
def test_jobs_that_cannot_start_take_no_places_of_jobs_that_can(reason: str) -> None:
    shares = tree({("attacker",): "", ("honest",): "cpus:1", ("other",): "cpus:1"})
    jobs = [job(1, "attacker", array=1, tasks="0-199", reason=reason)]
    jobs += [job(number, "honest") for number in range(2, 60)]
    jobs += [job(number, "other") for number in range(60, 90)]
    jobs += [job(number, "other", reason=reason) for number in range(90, 120)]
    order = ordered(shares, jobs, ahead=20, tasks_ahead=200)
    startable = Counter(placed.job.user for placed in order.placed if placed.job.reason != reason)
    waiting = Counter(placed.job.user for placed in order.placed if placed.job.reason == reason)
    assert startable == {"honest": 10, "other": 10}
    assert waiting["attacker"] <= 8, "a third of the places, as if the reason had ended"


@pytest.mark.parametrize(
    ("attackers", "contested", "own"), [(1, False, 50), (1, True, 50), (4, True, 13), (60, True, 1)]
)
def test_ready_jobs_that_never_start_leave_places_to_all_other_users(
    attackers: int, *, contested: bool, own: int
) -> None:
    """Slurm says `Priority` or `Resources` of jobs that wait for a node that stays busy."""
    names = [f"attacker{number}" for number in range(attackers)]
    honest: dict[UserPath, str] = {
        ("man",): "cpus:30",
        ("news",): "cpus:20",
        ("late",): "cpus:90",
    }
    users: dict[UserPath, str] = {(name,): "" for name in names} | honest
    small = Quantities.parse("mem:1")
    hostile = [
        job(1000 * place, name, array=1000 * place, tasks="0-119", quantities=small)
        for place, name in enumerate(names, 1)
    ]
    others = [
        job(200 * place + number, name)
        for place, (name,) in enumerate(honest)
        for number in range(1, 120)
    ]
    order = ordered(tree(users), hostile + others, contested=contested)
    placed = Counter(placed.user for placed in order.placed)
    assert sum(placed[user] for user in honest) >= own
    assert placed["late",] >= (1 if contested else 0)
    assert sum(placed.values()) <= 8 * 100 + len(users)
    alone = targets(ordered(tree(users), others, ahead=400))
    first = [placed.target for placed in order.placed if placed.user in honest]
    assert first[0] == alone[0]
    if own > 10:
        assert first[:own] == alone[:own]


def test_one_user_without_competitors_has_all_places_but_no_more() -> None:
    jobs = [job(number, "a") for number in range(1, 300)]
    assert len(targets(ordered(tree({("a",): ""}), jobs, ahead=50))) == 50


def test_few_jobs_of_a_user_that_cannot_start_are_in_the_order() -> None:
    shares = tree({("attacker",): "", ("honest",): "cpus:50"})
    small = Quantities.parse("mem:1")
    jobs = [
        job(number, "attacker", reason="ReqNodeNotAvail", quantities=small)
        for number in range(1, 500)
    ]
    jobs += [job(number, "honest") for number in range(500, 550)]
    users = Counter(placed.job.user for placed in ordered(shares, jobs, ahead=1000).placed)
    assert users["honest"] == 50
    assert users["attacker"] <= 20


def test_a_job_that_cannot_start_has_the_place_that_it_would_have_without_the_reason() -> None:
    shares = tree({("a",): "", ("b",): ""})
    jobs = [job(number, "a", reason="Licenses") for number in range(1, 4)]
    jobs += [job(number, "b") for number in range(4, 8)]
    assert targets(ordered(shares, jobs)) == ["1", "4", "2", "5", "3", "6", "7"]


PARTITIONS = ("p0", "p1", "p2", "p3")
SEPARATE = {
    name: ClusterNode(name, "IDLE", frozenset(), CAPACITY, (name,), None) for name in PARTITIONS
}
SETS = [("p0", *others) for count in range(4) for others in combinations(PARTITIONS[1:], count)]


@examples(60)
@given(
    st.sampled_from(["sdrf", "drf", "dynamic-drf"]),
    st.lists(st.tuples(st.sampled_from("abc"), demands, st.sampled_from(SETS)), max_size=25),
)
def test_users_that_list_further_partitions_get_no_further_turns(
    policy: str, wanted: list[tuple[str, str, tuple[str, ...]]]
) -> None:
    shares = tree({("a",): "", ("b",): "cpus:3;mem:10", ("c",): "cpus:5;mem:4000"}, policy)
    jobs = [
        job(number, user, quantities=Quantities.parse(demand), partitions=partitions)
        for number, (user, demand, partitions) in enumerate(wanted, 1)
    ]
    in_one = [replace(waiting, partitions=("p0",)) for waiting in jobs]
    assert targets(ordered(shares, jobs, SEPARATE)) == targets(ordered(shares, in_one, SEPARATE))


def test_components_of_heterogeneous_jobs_in_other_partitions_give_no_further_turns() -> None:
    shares = tree({("a",): "", ("b",): ""})
    jobs = [job(number, "b", partitions=("p0",)) for number in range(1, 10)]
    for number in range(10, 30, 2):
        first = PARTITIONS[number // 2 % 4]
        jobs.append(job(number, "a", heterogeneous=number, partitions=(first,)))
        jobs.append(job(number + 1, "a", heterogeneous=number, partitions=("p0",)))
    users = [placed.job.user for placed in ordered(shares, jobs, SEPARATE).placed]
    assert Counter(users[:12]) == {"a": 6, "b": 6}, "equal cores"


def test_a_job_in_several_partitions_is_placed_once_and_links_no_jobs_of_others() -> None:
    shares = tree({("a",): "", ("b",): "", ("c",): ""})
    jobs = [job(number, "b", partitions=("p0",)) for number in range(1, 9)]
    jobs += [job(number, "b", partitions=("p1",)) for number in range(11, 14)]
    jobs += [job(number, "c", partitions=("p1",)) for number in range(21, 24)]
    linking = job(30, "a", partitions=("p0", "p1"))
    placed = targets(ordered(shares, [*jobs, linking], SEPARATE))
    assert placed.count("30") == 1
    assert [target for target in placed if target != "30"] == targets(
        ordered(shares, jobs, SEPARATE)
    )
    in_second = [target for target in placed if int(target) > 10 and target != "30"]
    assert in_second == ["11", "21", "12", "22", "13", "23"]


def test_an_order_costs_the_same_beside_accounts_without_pending_jobs() -> None:
    def cost(accounts: int) -> int:
        shares = tree({(f"x{number}", "u"): "" for number in range(accounts)})
        jobs = [
            (job(number, "u", partitions=SETS[number % len(SETS)]), ("x0", "u"))
            for number in range(1, 50)
        ]

        def order() -> None:
            order_jobs(shares, jobs, {}, SEPARATE, {}, ahead=100, tasks_ahead=100)

        order()
        return counted(order)

    assert cost(200) < 1.5 * cost(2)
