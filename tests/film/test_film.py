"""Films are bounded, name all omissions, and keep the rest without loss."""

import random

from hypothesis import given
from hypothesis import strategies as st

from allocator.film.camera import (
    MOST_AGENTS,
    MOST_CELLS,
    MOST_FRAMES,
    MOST_USERS,
    AgentNow,
    Camera,
    UserNow,
    interval,
)
from allocator.film.pack import About, pack
from allocator.film.page import page
from tests.film.reading import film_of, grid_of, lines_of, times_of

ABOUT = About("log", "sdrf", 3600.0, "0", 1.0)
DAY = 86_400


def user(name: str, share: float = 0.0, commitment: float = 0.0, turn: int = 0) -> UserNow:
    return UserNow(name, "", share, commitment, 0.25, turn, "", {})


def agent(name: str, **held: int) -> AgentNow:
    return AgentNow(name, "", {"cpus": 4000}, {user: {"cpus": cpus} for user, cpus in held.items()})


histories = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(0, 10_000), st.integers())),
        st.dictionaries(st.sampled_from("wxyz"), st.integers(0, 4000)),
    ),
    min_size=1,
    max_size=20,
)


@given(histories)
def test_a_film_plays_the_recorded_states(
    history: list[tuple[dict[str, tuple[int, int]], dict[str, int]]],
) -> None:
    camera = Camera(1.0)
    for now, (users, agents) in enumerate(history):
        camera.take(
            float(now),
            [user(name, share / 10_000, turn=turn) for name, (share, turn) in users.items()],
            [agent(name, a=held) for name, held in agents.items()],
        )
    film = film_of(page(pack(camera.reel, ABOUT)))
    assert times_of(film) == list(range(len(history)))
    for name in {name for users, _ in history for name in users}:
        shares, _, _, turns, *_ = lines_of(film, name)
        for now, (users, _) in enumerate(history):
            if name in users:
                assert (shares[now], turns[now]) == users[name]
            else:
                assert shares[now] == -1
    for (_, agents), row in zip(history, grid_of(film), strict=True):
        shown = {}
        for name, cell in zip(film["agents"], row, strict=True):
            if cell:
                _, total, parts = film["cells"][cell - 1]
                assert total == [4000]
                assert all(film["users"][place][0] == "a" for place, _ in parts if place >= 0)
                shown[name] = sum(held for _, held in parts)
        assert shown == agents


def test_a_film_of_any_duration_is_bounded_and_covers_the_whole_duration() -> None:
    camera = Camera(1.0)
    for now in range(10 * MOST_FRAMES):
        if camera.due(now):
            camera.take(float(now), [user("a")], [agent("s")])
    frames = camera.reel.frames
    assert MOST_FRAMES / 2 <= len(frames) <= MOST_FRAMES
    assert frames[0].time == 0
    assert frames[-1].time > 9.9 * MOST_FRAMES
    assert camera.every == 16


def test_frames_are_at_round_intervals_and_large_clusters_have_fewer_frames() -> None:
    spans = (0.0, 600.0, 86_400.0, 7 * 86_400.0)
    assert [interval(span, 50) for span in spans] == [0.1, 0.5, 60.0, 600.0]
    assert interval(86_400.0, 20_000) == 600.0
    assert interval(1e12, 10**9) == 1e12


def test_omissions_are_named() -> None:
    camera = Camera(1.0)
    users = [user(f"u{number}", number / 1000) for number in range(MOST_USERS + 10)]
    agents = [agent(f"s{number}", u0=1000) for number in range(MOST_AGENTS + 7)]
    for now in range(MOST_CELLS // MOST_AGENTS):
        camera.take(float(now), users, agents)
    cells = sum(len(frame.users) + len(frame.agents) for frame in camera.reel.frames)
    assert cells <= MOST_CELLS
    film = pack(camera.reel, ABOUT)
    assert len(film["users"]) == MOST_USERS
    assert len(film["agents"]) == MOST_AGENTS
    assert film["about"]["notes"] == [
        "7 more agents are not shown.",
        "At least 10 more users are not shown: the smallest ones.",
    ]
    assert film["cells"] == [[0, [4000], [[-1, 1000]]]], "the sum of hidden users"


def test_filming_continues_after_the_clock_was_set_back() -> None:
    camera = Camera(10.0)
    camera.take(100.0, [], [])
    assert not camera.due(101.0)
    assert camera.due(50.0)


def test_a_state_that_lasted_for_milliseconds_is_no_picture_of_its_interval() -> None:
    camera = Camera(1.0)
    camera.take(0.0, [user("a", 0.0)], [])
    changes = [(0.5, 0.0), (1.0, 0.8), (1.004, 0.0), (1.5, 0.0), (2.0, 0.8), (2.004, 0.0)]
    for (now, share), (following, _) in zip(changes, [*changes[1:], (3.0, 0.0)], strict=True):
        if camera.due_between(now, following):
            camera.take(now, [user("a", share)], [])
    frames = [(frame.time, frame.users["a"].share) for frame in camera.reel.frames]
    assert frames == [(0.0, 0), (0.5, 0), (1.5, 0), (2.004, 0)]


def test_users_and_agents_that_come_and_go_are_marked() -> None:
    camera = Camera(1.0)
    camera.take(0.0, [user("a", turn=1), user("b")], [agent("s"), agent("t")])
    camera.take(1.0, [user("a"), user("b", turn=1)], [agent("s")])
    camera.take(2.0, [user("a", turn=1)], [agent("s"), agent("u"), agent("v")])
    assert [text for _, text in camera.reel.marks] == [
        "a began to want offers",
        "b began to want offers",
        "agent t went",
        "agent u and 1 more came",
    ]


def test_a_day_of_forty_agents_can_be_attached_to_a_bug_report() -> None:
    """The worst case: from frame to frame every amount changes, to a value of no other agent."""
    chance = random.Random(1)
    camera = Camera(600.0)  # and of each ten minutes; there may be ten times as many
    names = [f"user-{number}" for number in range(40)]

    def amounts() -> dict[str, int]:
        return {"cpus": chance.randrange(4000), "mem": chance.randrange(6_144_000)}

    for now in range(0, DAY, 600):
        users = [
            UserNow(
                name, "", chance.random(), chance.random(), 0.025, place, "waits for its turn", {}
            )
            for place, name in enumerate(names)
        ]
        agents = [
            AgentNow(
                f"node-{number}.rack-{number % 4}.example.org",
                "",
                {"cpus": 4000, "mem": 6_144_000},
                {name: amounts() for name in chance.sample(names, 4)},
            )
            for number in range(40)
        ]
        camera.take(float(now), users, agents)
    empty = len(page(pack(Camera(1.0).reel, ABOUT)))
    changing = len(page(pack(camera.reel, ABOUT))) - empty
    assert empty + changing * MOST_FRAMES / len(camera.reel.frames) < 5_000_000
