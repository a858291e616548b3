"""The time machine turns an event log into a single HTML file that works offline."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from allocator.cli import app
from allocator.cluster.settings import EngineSettings
from allocator.contract import operator_pb2 as operator
from allocator.fairness import policies
from allocator.film.camera import AgentNow, Camera
from allocator.film.pack import About, pack
from allocator.film.page import page
from allocator.service.record.replay import apply_entry, new_engine, open_log
from allocator.service.show.filming import span
from allocator.users.settings import DeclaredUser
from tests.film.reading import film_of, grid_of, lines_of, times_of
from tests.film.test_film import user
from tests.service.browser import Browser, axe, browsing, chromedriver
from tests.service.record.test_event_log import RecordedMaster, entries, rewrite
from tests.service.show.test_status_page import press

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><b>"
WIDTHS = (360, 1280)
BESIDES_THE_CURSOR = """(() => {
  const slider = document.getElementById('slider');
  const box = slider.getBoundingClientRect();
  const thumb = box.width - document.getElementById('marks').getBoundingClientRect().width;
  const part = (slider.value - slider.min) / (slider.max - slider.min);
  const cursor = document.querySelector('#shares .now').getBoundingClientRect();
  const middle = box.left + thumb / 2 + part * (box.width - thumb);
  return Math.abs(middle - cursor.left - cursor.width / 2);
})()"""
"""Distance in pixels between the middle of the slider's thumb and the cursor in the chart."""


def record(path: Path) -> None:
    """Record two users, a hostile name among them, an order, and an agent that leaves."""
    chosen = EngineSettings(
        policies.create("sdrf", {"half_life": 50.0}),
        user_key="framework_name",
        users=(DeclaredUser("f1 of the tests"),),
    )
    master = RecordedMaster(path, chosen)
    running = master.add_framework("f1", "a")
    for number in range(4):
        running += master.add_agent(f"s{number}", "cpus:1;mem:1024")
    for second in range(120):
        if second == 40:
            running += master.add_framework(HOSTILE, "b")
        if second == 60:
            weight = operator.SetWeight(user="f1 of the tests", weight=2.0)
            master.engine.order(operator.Order(set_weight=weight))
        if second == 90:
            running = [task for task in running if task.agent != "s3"]
            master.remove_agent("s3")
        if second % 10 == 0:
            running = master.begin_anew(running)
        running += master.tick()
    master.event_log.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "events.log"
    record(path)
    return path


@pytest.fixture(scope="module")
def played(recorded: Path) -> Path:
    page = recorded.with_name("time-machine.html")
    completed = CliRunner().invoke(app, ["replay", str(recorded), "--html", str(page)])
    assert completed.exit_code == 0, completed.output
    assert str(page) in completed.output.replace("\n", "")
    return page


def truth(recorded: Path) -> Iterator[tuple[float, Any]]:
    header, rest = open_log(recorded)
    engine = new_engine(header)
    for entry in rest:
        apply_entry(engine, entry)
        yield engine.now, engine


def test_each_frame_shows_the_shares_and_allocations_of_its_time(
    recorded: Path, played: Path
) -> None:
    film = film_of(played.read_bytes())
    times, grid = times_of(film), grid_of(film)
    last = {}
    for now, engine in truth(recorded):  # the last state of each time
        last[now] = engine.standings(), engine.pool.held()["cpus"]
    checked = 0
    for frame, now in enumerate(times):
        standings, held_cpus = last[now]
        for standing in standings:
            share, debt, entitlement, *_ = lines_of(film, standing.user)
            assert share[frame] == round(10_000 * standing.share)
            assert debt[frame] == round(10_000 * standing.commitment)
            assert entitlement[frame] == round(10_000 * standing.entitlement)
        held = [film["cells"][cell - 1][2] for cell in grid[frame] if cell]
        everything = sum(
            amounts[film["resources"].index("cpus")] for h in held for _, *amounts in h
        )
        assert everything == held_cpus
        checked += 1
    assert checked == len(times) > 100


def test_orders_new_users_and_lost_agents_are_marked(played: Path) -> None:
    marks = [text for _, text in film_of(played.read_bytes())["marks"]]
    assert marks[0] == "the recording begins"
    assert "an operator set the weight of f1 of the tests to 2" in marks
    assert f"{HOSTILE} of the tests began to want offers" in marks
    assert "agent s3.example went" in marks


def test_hostile_names_do_not_become_markup(played: Path) -> None:
    page = played.read_text()
    assert "onerror" not in page
    assert page.count("</script>") == 2
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")


def test_a_log_with_a_differing_decision_is_played_up_to_the_difference(
    recorded: Path, tmp_path: Path
) -> None:
    kept = entries(recorded)
    kept[100].apply.outcome.refusal = "never"
    changed, page = tmp_path / "log", tmp_path / "film.html"
    rewrite(changed, kept)
    completed = CliRunner().invoke(app, ["replay", str(changed), "--html", str(page)])
    assert completed.exit_code == 1
    notes = film_of(page.read_bytes())["about"]["notes"]
    assert (
        "It ends where this version of Longshare decides differently from the recording." in notes
    )


def test_an_unusable_log_is_refused_and_leaves_no_file(recorded: Path, tmp_path: Path) -> None:
    page = tmp_path / "film.html"
    nothing = tmp_path / "log"
    rewrite(nothing, entries(recorded)[:1])
    completed = CliRunner().invoke(app, ["replay", str(nothing), "--html", str(page)])
    assert (completed.exit_code, "has no events" in completed.output) == (2, True)
    asked = ["replay", str(recorded), "--html", str(page), "--policy", "drf"]
    assert CliRunner().invoke(app, asked).exit_code == 2
    completed = CliRunner().invoke(
        app, ["replay", str(recorded), "--html", str(tmp_path / "no" / "f")]
    )
    assert completed.exit_code == 2
    assert list(tmp_path.iterdir()) == [nothing]


def test_the_length_and_size_of_a_log_are_known_before_its_replay(recorded: Path) -> None:
    seconds, size = span(recorded)
    assert 100 < seconds < 200
    assert size == 6, "the size is four agents and two frameworks"


def contest(path: Path) -> None:
    """Write a film of user a alone, and of user b, which comes after 10 s and leads after 12 s."""
    camera = Camera(1.0)
    for second in range(20):
        b = 0.0 if second < 10 else 0.4 if second < 12 else 0.6
        held = {"a": {"cpus": round(1000 - 1000 * b)}, "b": {"cpus": round(1000 * b)}}
        agents = [AgentNow("s", "", {"cpus": 1000}, held)]
        users = [user("a", 1.0 - b, b / 2, turn=1), user("b", b, turn=2 if second >= 10 else 0)]
        camera.take(1_600_000_000.0 + second, users, agents)
    path.write_bytes(page(pack(camera.reel, About("events.log", "sdrf", 60.0, "0", 1.0))))


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_the_time_machine_opens_at_the_first_lead_of_a_newcomer(width: int, tmp_path: Path) -> None:
    if chromedriver() is None:
        pytest.skip(
            "chromium and chromedriver are not installed, so the page is not tested in a browser"
        )
    film = tmp_path / "film.html"
    contest(film)
    with browsing(tmp_path, width) as browser:
        browser.open(film.as_uri())
        browser.wait_for("#clock", "12\u00a0s")
        assert browser.run("return location.hash") == ""
        assert browser.text("#play") == "Play"
        assert browser.text("#mark") == "12\u00a0s: b now holds more than a, which led before"
        assert browser.run(f"return {BESIDES_THE_CURSOR}") < 1.0
        texts = browser.text("#shares").split("\n")
        assert {"a", "b", "0\u00a0%", "100\u00a0%"} <= {*texts}
        phrase = "entitled to 25.0\u00a0%"
        assert (phrase if width == WIDTHS[0] else f"each user is {phrase}") in texts
        browser.wait_for("#users", "commitment")  # a term of the legend
        shares = browser.run("return player.charts[0].paths.map((each) => each.getAttribute('d'))")
        assert all("L" not in share for share in shares), "shares change in steps"
        assert "Time since the first demand (s)" in browser.text("#past")
        browser.run("document.getElementById('by-clock').click()")
        browser.wait_for("#clock", "12:26:52")
        browser.open("about:blank")
        browser.open(f"{film.as_uri()}#t=5&user=b")
        browser.wait_for("#clock", "5\u00a0s")
        browser.wait_for("#why", "It holds nothing: 0.0\u00a0% of the cluster.")
        assert browser.complaints() == []


def crowd(path: Path) -> None:
    """Write a film of 1,000 agents, each held by two of 200 users that change over 20 frames."""
    chance = random.Random(1)
    camera = Camera(1.0)
    names = [f"user-{number:03}" for number in range(200)]
    for second in range(20):
        shares = dict.fromkeys(names, 0.0)
        agents = []
        for number in range(1000):
            holders = [names[min(int(chance.expovariate(0.025)), 199)] for _ in range(2)]
            for name in holders:
                shares[name] += 0.0005
            held = {name: {"cpus": 4000} for name in holders}
            agents.append(AgentNow(f"node-{number:04}", "", {"cpus": 8000}, held))
        users = [
            user(name, shares[name], shares[name] / 3, turn)
            for turn, name in enumerate(sorted(names, key=shares.__getitem__), 1)
        ]
        camera.take(1_600_000_000.0 + second, users, agents)
    path.write_bytes(page(pack(camera.reel, About("events.log", "sdrf", 60.0, "0", 1.0))))


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_a_film_of_a_thousand_agents_and_two_hundred_users_is_usable(
    width: int, tmp_path: Path
) -> None:
    if chromedriver() is None:
        pytest.skip(
            "chromium and chromedriver are not installed, so the page is not tested in a browser"
        )
    film = tmp_path / "film.html"
    crowd(film)
    assert film.stat().st_size < 1_000_000
    with browsing(tmp_path, width) as browser:
        browser.open(film.as_uri())
        browser.wait_for("#agents-told", "1,000 agents, 100 % held")
        assert browser.run("return document.documentElement.scrollWidth") <= width
        assert browser.run("return document.querySelectorAll('*').length") < 3500
        assert browser.run(OVERLAPPING) == []
        coloured = "return player.film.users.map((each) => each[2]).filter((each) => each < 7)"
        assert sorted(browser.run(coloured)) == list(range(7)), "one user of each colour"
        before = browser.text("#clock")
        press(browser, "ArrowRight")
        assert browser.text("#clock") != before
        browser.run("document.querySelectorAll('#users button')[199].click()")
        browser.wait_for("#why", "of the 200 users that want offers")
        assert browser.complaints() == []


OVERLAPPING = """return [...document.querySelectorAll('.chart')].flatMap((chart) => {
  const names = [...chart.querySelectorAll('.named')].filter((each) => each.offsetWidth);
  const boxes = names.map((each) => each.getBoundingClientRect());
  return names.filter((_, one) => boxes.some((box, other) => other < one &&
    box.left < boxes[one].right - 1 && boxes[one].left < box.right - 1 &&
    box.top < boxes[one].bottom - 1 && boxes[one].top < box.bottom - 1))
    .map((each) => each.innerText);
})"""
"""Script for the names in the charts with an overlap with an earlier name."""


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_a_browser_plays_the_time_machine(width: int, played: Path, tmp_path: Path) -> None:
    if chromedriver() is None:
        pytest.skip(
            "chromium and chromedriver are not installed, so the page is not tested in a browser"
        )
    with browsing(tmp_path, width) as browser:
        browser.open(played.as_uri())
        browser.wait_for("#about", "sdrf, half-life 50\u00a0s")
        assert browser.run("return document.title") == "events.log – Longshare time machine"
        assert browser.run("return document.images.length") == 0
        move(browser, 1000)
        assert HOSTILE in browser.text("#users")
        assert browser.run("return document.documentElement.scrollWidth") <= width
        assert "3 agents" in browser.text("#agents-told")
        assert browser.run("return document.querySelectorAll('#agents button.gone').length") == 1
        move(browser, 20)
        before = browser.text("#clock")
        browser.run("document.querySelector('#agents button').click()")
        browser.wait_for("#why", "It has cpus 1, mem 1,024\u00a0MB.")
        press(browser, "Escape")
        assert browser.run("return document.getElementById('why').hidden") is True
        browser.run("document.querySelector('#users button').click()")
        browser.wait_for("#why", "It is entitled to")
        browser.run("document.activeElement.blur()")
        press(browser, "ArrowRight")
        assert browser.text("#clock") != before
        browser.run("document.querySelector('#agents button').focus()")
        press(browser, "ArrowRight")
        label = browser.run("return document.activeElement.getAttribute('aria-label')")
        assert label.startswith("s1.example, ")
        move(browser, 85)
        browser.run("document.getElementById('speed').selectedIndex = 0")
        press(browser, " ")
        assert browser.text("#play") == "Stop"
        browser.run("document.getElementById('speed').selectedIndex = 3")
        browser.wait_for("#mark", "agent s3.example went")
        moment = browser.run(
            "const play = document.getElementById('play'); "
            "if (play.textContent === 'Stop') play.click(); return location.hash"
        )
        assert moment.startswith("#t=")
        browser.open("about:blank")
        browser.open(f"{played.as_uri()}{moment}")
        browser.wait_for("#mark", "agent s3.example went")
        checker = axe()
        if checker is not None:
            assert browser.violations(checker) == []
        assert browser.complaints() == [], "the page obeys its own content policy"


def move(browser: Browser, frame: int) -> None:
    browser.run(
        "const slider = document.getElementById('slider'); const { times } = player.film; "
        f"slider.value = times[Math.min({frame}, times.length - 1)]; "
        "slider.dispatchEvent(new Event('input'))"
    )
