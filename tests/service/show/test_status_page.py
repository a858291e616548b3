"""The status page shows the engine's state on desktop and phone, and survives restarts."""

import itertools
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from allocator.cluster.engine import Engine
from allocator.cluster.settings import EngineSettings
from allocator.contract import allocator_pb2 as contract
from allocator.cooperative import run_to_completion
from allocator.fairness import policies
from allocator.palette import user_colours
from allocator.service.masters.session import SessionStatistics
from allocator.service.show.offer_history import OfferTrail
from allocator.service.show.status import Status
from allocator.service.show.wait_reasons import Waits
from allocator.users.settings import DeclaredUser
from frameworks.harness.ports import free_port
from tests.cluster.master_side import SECOND, START_NS, agent_call, framework_info, resources
from tests.deploy.watched import busy_service
from tests.service.browser import Browser, axe, browsing, chromedriver
from tests.service.served import PATIENCE, Stream, service, wait_for
from tests.service.show import crowds
from tests.service.show.crowds import crowded_service

SETTINGS = EngineSettings(
    policies.create("sdrf", {"delta": 0.99}), users=(DeclaredUser("a"), DeclaredUser("b"))
)
PHONE = 360
WIDTHS = (PHONE, 1280)
GONE = ("net::ERR_CONNECTION", "net::ERR_EMPTY_RESPONSE")
"""Browser messages for a server that does not listen or is killed before an answer."""


def get(url: str) -> Any:  # noqa: ANN401 - JSON
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return json.load(answer)


def snapshot() -> contract.Snapshot:
    frameworks = [
        contract.AddFramework(framework_id=f"f-{u}", info=framework_info(f"f-{u}", u), active=True)
        for u in "ab"
    ]
    agents = [
        agent_call("s1", "cpus:4;mem:4096", {"f-b": resources("cpus:1;mem:512", "b")}),
        agent_call("s2", "cpus:2;mem:512"),
    ]
    return contract.Snapshot(
        time_ns=START_NS, agents=agents, frameworks=frameworks, inactive_agents=["s2"]
    )


def offered(policy: str = "sdrf", seconds: int = 0) -> tuple[Engine, Status]:
    """Return a cluster with two frameworks that want offers, after ticks of a second each."""
    trail = OfferTrail()
    parameters = {"delta": 0.99} if policy in ("sdrf", "stsf") else {}
    settings = EngineSettings(policies.create(policy, parameters), users=SETTINGS.users)
    engine = Engine(settings)
    engine.watch(trail)
    engine.restore(contract.Options(), snapshot())
    for number in range(1, seconds + 1):
        event = contract.Event(
            sequence=number, time_ns=START_NS + number * SECOND, tick=contract.Tick()
        )
        engine.apply(contract.Events(events=[event]))
    waits = Waits(engine, SessionStatistics(connected=True))
    return engine, Status(engine, waits, trail, None)


def test_an_offer_is_shown_with_the_order_of_users_at_its_time() -> None:
    _, status = offered()
    (offer,) = run_to_completion(status.first_view())["offers"]
    assert (offer["user"], offer["framework"]) == ("a", "f-a of the tests")
    assert offer["resources"] == {"cpus": 3.0, "mem": 3584.0}
    assert offer["why"] == f"It was next in the order: a 0.0000, b {1 / 6:.4f}."


def test_an_agent_is_shown_with_its_users_and_its_state() -> None:
    _, status = offered()
    first, second = run_to_completion(status.first_view())["agents"]
    assert first["state"] == "full"
    assert first["held"] == {
        "a": {"cpus": 3.0, "mem": 3584.0},
        "b": {"cpus": 1.0, "mem": 512.0},
    }
    assert (second["state"], second["free"]) == ("deactivated", {"cpus": 2.0, "mem": 512.0})


def test_equal_agents_are_equal_although_their_resources_arrive_in_another_order() -> None:
    engine = Engine(SETTINGS)
    agents = [
        agent_call("s1", "cpus:4;mem:4096", {"f-b": resources("cpus:1;mem:512", "b")}),
        agent_call("s2", "mem:4096;cpus:4", {"f-b": resources("mem:512;cpus:1", "b")}),
    ]
    frameworks = [
        contract.AddFramework(framework_id="f-b", info=framework_info("f-b", "b"), active=True)
    ]
    restored = contract.Snapshot(time_ns=START_NS, agents=agents, frameworks=frameworks)
    engine.restore(contract.Options(), restored)
    waits = Waits(engine, SessionStatistics(connected=True))
    view = run_to_completion(Status(engine, waits, OfferTrail(), None).first_view())
    first, second = (json.dumps({**agent, "agent": "", "host": ""}) for agent in view["agents"])
    assert first == second


def test_watching_the_engine_changes_no_decision() -> None:
    decided = []
    for watched in (False, True):
        engine = Engine(SETTINGS)
        if watched:
            engine.watch(OfferTrail())
        stream = [engine.restore(contract.Options(), snapshot())]
        for number in range(1, 20):
            event = contract.Event(sequence=number, time_ns=START_NS + number * SECOND // 3)
            if number % 2:
                event.tick.SetInParent()
            else:
                recovered = stream[0].offers[0].offers[0].resources if number == 2 else []
                event.recover_resources.framework_id = stream[0].offers[0].framework_id
                event.recover_resources.agent_id = "s1"
                event.recover_resources.resources.extend(recovered)
            stream.append(engine.apply(contract.Events(events=[event])))
        assert engine.statistics.offers > 1
        decided.append([decisions.SerializeToString(deterministic=True) for decisions in stream])
    assert decided[0] == decided[1]


def test_the_status_is_never_older_than_its_time() -> None:
    instants = set()
    tick = contract.Event(sequence=1, time_ns=START_NS + 60 * SECOND, tick=contract.Tick())
    for steps in itertools.count():
        engine, status = offered()
        looking = status.first_view()
        if sum(1 for _ in itertools.islice(looking, steps)) < steps:
            break
        engine.apply(contract.Events(events=[tick]))
        view, later = run_to_completion(looking), run_to_completion(status.first_view())
        instants.add(view["time"])
        if view["time"] == engine.now:
            assert view["users"] == later["users"]
            assert view["agents"] == later["agents"]
    assert instants == {START_NS / SECOND, START_NS / SECOND + 60}


@pytest.mark.parametrize("policy", policies.names())
def test_the_page_gets_json_without_infinities_under_every_policy(policy: str) -> None:
    _, status = offered(policy, seconds=3)
    view = json.loads(json.dumps(run_to_completion(status.first_view()), allow_nan=False))
    assert {row["user"] for row in view["users"]} == {"a", "b"}
    assert run_to_completion(status.explanation("a", run_to_completion(status.rows())))
    assert run_to_completion(status.explanation("nobody", run_to_completion(status.rows()))) is None


def test_the_service_sends_a_strict_content_policy_and_explains_on_request(tmp_path: Path) -> None:
    with busy_service(tmp_path) as (running, _):
        base = running.metrics_url.removesuffix("metrics")
        status = get(f"{base}api/status")
        assert (status["connected"], status["agents_known"]) == (True, 1)
        assert {row["user"] for row in status["users"]} == {"holding", "owing"}
        assert status["overtakings"][0]["passing"] == "owing"
        assert "owes" in " ".join(get(f"{base}api/explain?user=owing")["words"])
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(f"{base}api/explain?user=%3Cscript%3E")
        with pytest.raises(urllib.error.HTTPError, match="404") as unknown:
            get(f"{base}api/explain?user=f1")
        assert b"f1 is a framework of the user holding" in unknown.value.read()
        past = get(f"{base}api/past?seconds=3600&user=owing&user=holding")
        assert 0.8 < past["users"]["owing"][1][0] < 0.9, "the commitment after five seconds"
        for wrong in ("never", "0", "nan", "inf"):
            with pytest.raises(urllib.error.HTTPError, match="400"):
                get(f"{base}api/past?seconds={wrong}")
        for path in ("", "common.js", "users.js", "page.js", "page.css", "api/status", "api/past"):
            with urllib.request.urlopen(base + path) as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert policy.startswith("default-src 'none'; script-src 'self';")
                assert "unsafe" not in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"


def need_a_browser() -> None:
    if chromedriver() is None:
        pytest.skip(
            "chromium and chromedriver are not installed, so the page is not tested in a browser"
        )


def assert_it_fits(browser: Browser, width: int) -> None:
    assert browser.run("return document.documentElement.clientWidth") == width
    assert browser.run("return document.documentElement.scrollWidth") <= width


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_updates_itself_and_survives_the_services_restart(
    width: int, tmp_path: Path
) -> None:
    need_a_browser()
    metrics = f"127.0.0.1:{free_port()}"
    with browsing(tmp_path, width) as browser:
        with busy_service(tmp_path, metrics) as (_, stream):
            browser.open(f"http://{metrics}/")
            browser.wait_for("#connection", "A leading master is connected.")
            browser.wait_for("#policy", "sdrf · half-life 1.1\u00a0min · version")
            browser.wait_for("#clock", "2020-09-13 12:26:50 UTC")
            browser.wait_for("#users", "owing")
            browser.wait_for("#offers", "in the order")
            browser.wait_for("#overtakings", "owing may overtake holding")
            wait_for(lambda: drawn(browser) == 4)
            curve = browser.run(
                "return document.querySelector('#users path.share').getAttribute('d')"
            )
            assert curve.startswith("M0.0,"), "a chart begins where there are values"
            assert "L" not in curve, "shares change in steps"
            assert colours(browser) == user_colours(["holding", "owing"])
            assert_it_fits(browser, width)
            browser.run("document.querySelector('#users .name').focus()")
            browser.run("document.activeElement.click()")
            browser.wait_for("#why", "As of 12:26:50 UTC")
            browser.wait_for("#why", "has rank")
            before = browser.text("#users")
            stream.now_ns += 60 * SECOND
            stream.tell(tick=contract.Tick())
            browser.wait_for("#clock", "12:27:50 UTC")
            assert browser.text("#users") != before
            assert browser.run("return document.activeElement.tagName") == "BUTTON"
            assert browser.complaints() == []
            stream.close()
            browser.wait_for("#connection", "No leading master is connected")
        browser.wait_for("#connection", "does not answer")
        assert "owing" in browser.text("#users"), "the last known state stays"
        with service(tmp_path, metrics=metrics):
            browser.wait_for("#connection", "No leading master is connected")
            complaints = [
                complaint
                for complaint in browser.complaints()
                if not any(map(complaint.count, GONE))
            ]
            assert complaints == []
            assert_it_fits(browser, width)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_the_keyboard_reads_the_values_of_charts(width: int, tmp_path: Path) -> None:
    need_a_browser()
    with browsing(tmp_path, width) as browser, busy_service(tmp_path) as (running, stream):
        for _ in range(20):
            stream.now_ns += 5 * SECOND
            stream.tell(tick=contract.Tick())
        browser.open(running.metrics_url.removesuffix("metrics"))
        wait_for(lambda: drawn(browser) == 4)
        charts = browser.run(
            "return [...document.querySelectorAll('#users svg')].map((each) => each.tabIndex)"
        )
        assert charts == [0, -1], "one chart is in the Tab order"
        browser.run("document.querySelector('#users svg').focus()")
        browser.wait_for("#reading", "12:28:30 · share ")
        samples = browser.run(
            "return users.past.times.filter((each) => each >= users.past.first)"
            ".map((each) => users.named(each).slice(0, 8))"
        )
        spoken = "return document.activeElement.getAttribute('aria-valuetext')"
        keys = {
            "End": -1,
            "ArrowLeft": -2,
            "ArrowRight": -1,
            "PageDown": 0,
            "PageUp": -1,
            "Home": 0,
        }
        for key, place in keys.items():
            press(browser, key)
            text = browser.text("#reading")
            assert text.startswith(f"{samples[place]} · share "), key
            assert browser.run(spoken) == text
        press(browser, "ArrowDown")
        browser.wait_for("#reading", f"{samples[0]} · share ")
        second = "return document.activeElement === document.querySelectorAll('#users svg')[1]"
        assert browser.run(second)
        press(browser, "Escape")
        assert browser.run("return document.getElementById('reading').hidden")
        assert browser.complaints() == []


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_a_service_without_users_shows_no_empty_tables(width: int, tmp_path: Path) -> None:
    need_a_browser()
    with service(tmp_path) as running, browsing(tmp_path, width) as browser:
        browser.open(running.metrics_url.removesuffix("metrics"))
        browser.wait_for("#users-part", "The service knows no users yet.")
        browser.wait_for("#agents-part", "None yet.")
        assert browser.run(
            "return [...document.querySelectorAll('table, select, input, button, ol')]"
            ".filter((each) => each.offsetWidth).length === 0"
        )
        assert_it_fits(browser, width)


@pytest.mark.slow
def test_roles_and_resources_may_have_names_that_each_object_inherits(tmp_path: Path) -> None:
    need_a_browser()
    inherited = ["__proto__", "constructor", "hasOwnProperty", "toString"]
    held = "cpus:1;" + ";".join(f"{name}:2" for name in inherited)
    agents = [
        agent_call(f"s{number}", f"{held};mem:512", {f"f-{name}": resources(held, name)})
        for number, name in enumerate(inherited)
    ]
    frameworks = [
        contract.AddFramework(
            framework_id=f"f-{name}", info=framework_info(f"f-{name}", name), active=True
        )
        for name in inherited
    ]
    with service(tmp_path) as running, browsing(tmp_path, 1280) as browser:
        stream = Stream(running.address)
        stream.open(agents=agents, frameworks=frameworks)
        for _ in range(2):
            stream.now_ns += 60 * SECOND
            stream.tell(tick=contract.Tick())
        browser.open(running.metrics_url.removesuffix("metrics"))
        browser.wait_for("#connection", "A leading master is connected.")
        browser.wait_for("#cluster", "8 of 8 held")
        wait_for(lambda: drawn(browser) > 0)
        assert sorted(names(browser)) == inherited
        for name in inherited:
            assert f"{name} 2" in browser.text("#agents")
        assert "does not answer" not in browser.text("#connection")
        assert "native code" not in browser.text("body")
        assert browser.complaints() == []
        stream.close()


@pytest.mark.slow
def test_curves_are_drawn_although_the_history_arrives_after_newer_statuses(
    tmp_path: Path,
) -> None:
    need_a_browser()
    with browsing(tmp_path, 1280) as browser, busy_service(tmp_path) as (running, _):
        browser.before_each_page(LATE_PAST)
        browser.open(running.metrics_url.removesuffix("metrics"))
        wait_for(lambda: drawn(browser) == 4)
        assert browser.run("return rounds") >= 2, (
            "the status was fetched twice while the history was on its way"
        )


LATE_PAST = """
let rounds = 0;
const asked = window.fetch;
window.fetch = async (path, ...rest) => {
  const answer = await asked(path, ...rest);
  if (path.startsWith("api/status")) rounds += 1;
  if (!path.startsWith("api/past")) return answer;
  const since = rounds;
  while (rounds < since + 2) await new Promise((done) => setTimeout(done, 50));
  return answer;
};
"""
"""Script that delays each history answer until the page has fetched two more statuses."""


def drawn(browser: Browser) -> int:
    """Return the number of drawn curves of shares and commitments."""
    lines = "document.querySelectorAll('#users path.share, #users path.commitment')"
    return int(browser.run(f"return [...{lines}].filter((line) => line.getAttribute('d')).length"))


def names(browser: Browser) -> list[str]:
    names: list[str] = browser.run(
        "return [...document.querySelectorAll('#users .name')].map((each) => each.textContent)"
    )
    return names


@pytest.mark.slow
def test_a_thousand_users_are_searched_sorted_and_paged(tmp_path: Path) -> None:
    need_a_browser()
    with crowded_service(tmp_path) as (running, _), browsing(tmp_path, 1280) as browser:
        browser.open(running.metrics_url.removesuffix("metrics"))
        browser.wait_for("#users-shown", "1–10 of 10")
        assert browser.text("#state option:checked") == "wants offers (10)"
        choose(browser, "state", "active")
        browser.wait_for("#users-shown", "1–25 of 100")
        choose(browser, "state", "all")
        browser.wait_for("#users-shown", "1–25 of 1000")
        wait_for(lambda: drawn(browser) > 0)
        assert browser.run("return document.querySelectorAll('*').length") < 2500
        assert_it_fits(browser, 1280)
        click(browser, "#headings th:nth-child(4) button")
        wait_for(lambda: names(browser)[0] == crowds.name(0))
        shares = [float(row.split()[0]) for row in cells(browser, "share")]
        assert shares == sorted(shares, reverse=True)
        scales = browser.run(
            "return [...document.querySelectorAll('#users svg')].map((each) => "
            "each.getAttribute('aria-label').split('scale up to ')[1])"
        )
        assert len(set(scales)) == 1, "all curves have the same scale"
        wide = headings(browser)
        assert wide[:4] == ["rank", "user", "over time", "share"]
        assert not {"task share", "of that offered"} & {*wide}, "columns without data are hidden"
        click(browser, "#users-forth")
        browser.wait_for("#users-shown", "26–50 of 1000")
        choose(browser, "state", "wanting")
        search(browser, "USER-099")
        browser.wait_for("#users-shown", "1–10 of 10 found of 1000")
        assert set(names(browser)) == {crowds.name(990 + number) for number in range(10)}
        wait_for(lambda: drawn(browser) == 20)
        search(browser, "nobody at all")
        browser.wait_for("#users-shown", "none found of 1000")
        assert browser.complaints() == []


@pytest.mark.slow
def test_a_phone_shows_the_most_important_of_a_thousand_users_first(tmp_path: Path) -> None:
    need_a_browser()
    with crowded_service(tmp_path) as (running, _), browsing(tmp_path, PHONE) as browser:
        browser.open(running.metrics_url.removesuffix("metrics"))
        browser.wait_for("#users-shown", "1–5 of 10")
        wait_for(lambda: drawn(browser) == 10)
        browser.wait_for("#next", "user-0000 is next, with rank 991 (too little free).")
        browser.wait_for("#users", "too little free")
        browser.wait_for("#agents", "in all: user-0900: cpus 59, mem 72,704\u00a0MB; ")
        browser.wait_for("#agents", "s0.example and 99 more like it")
        browser.wait_for("#shadows", "Largest gains and losses")
        assert browser.run("return document.documentElement.scrollHeight") < 1700
        assert_it_fits(browser, PHONE)
        assert shown_headings(browser) == ["share", "entitled to", "commitment", "shortfall"]
        click(browser, "#users .name")
        browser.wait_for("#why", "has rank")
        assert set(shown_headings(browser)) == {*headings(browser)} - {
            *("rank", "user", "over time", "reason to wait")
        }, "a selected user shows all its numbers"
        choose(browser, "sort", "share")
        wait_for(lambda: names(browser)[0] == crowds.name(0))
        click(browser, "#shadows summary")
        browser.wait_for("#shadows", "gain, h")
        width = "document.querySelector('#shadows > div').{}Width"
        assert browser.run(f"return {width.format('scroll')} <= {width.format('client')}")
        click(browser, "#agents-alike")
        browser.wait_for("#agents-shown", "1–5 of 100")
        assert browser.run("return document.querySelectorAll('#offers li').length") == 1
        click(browser, "#offers-all")
        wait_for(lambda: browser.run("return document.querySelectorAll('#offers li').length") > 1)
        assert_it_fits(browser, PHONE)


HISTORY = """
[policy]
name = "sdrf"
half_life = "1d"
[accounting]
every = 1
[users]
counts_for = inf
"""


@pytest.mark.slow
def test_charts_of_thirty_days_survive_a_restart(tmp_path: Path) -> None:
    need_a_browser()
    agents = [agent_call("s", "cpus:4;mem:4096", {"f": resources("cpus:3;mem:1024", "a")})]
    framework = contract.AddFramework(
        framework_id="f", info=framework_info("f", "a"), active=True, suppressed_roles=["a"]
    )
    with service(tmp_path, HISTORY) as running:
        stream = Stream(running.address)
        stream.open(agents=agents, frameworks=[framework])
        for _ in range(5 * 24):
            stream.now_ns += 3600 * SECOND
            stream.tell(tick=contract.Tick())
        now = stream.now_ns
        stream.close()
        assert running.stop() == 0
    with service(tmp_path, HISTORY) as running, browsing(tmp_path, PHONE) as browser:
        stream = Stream(running.address)
        stream.now_ns = now + 60 * SECOND
        stream.open(agents=agents, frameworks=[framework])
        stream.now_ns += 20 * SECOND
        stream.tell(tick=contract.Tick())
        browser.open(running.metrics_url.removesuffix("metrics"))
        browser.wait_for("#users", "a")
        choose(browser, "range", "2592000")
        browser.wait_for("#headings th.chart", "5\u00a0d")
        browser.wait_for("#scale", "means of 3\u00a0h from the accounts")
        line = "document.querySelector('#users path.share').getAttribute('d')"
        wait_for(
            lambda: browser.run(
                f"return {line}.startsWith('M0.0,') && {line}.split('H').length > 40"
            )
        )
        point(browser, 0.5)
        browser.wait_for("#reading", "2020-09-16")
        browser.wait_for("#reading", "share 75.0\u00a0%")
        choose(browser, "range", "300")
        browser.wait_for("#headings th.chart", "5\u00a0min")
        assert browser.complaints() == []
        assert_it_fits(browser, PHONE)
        stream.close()


def point(browser: Browser, part: float) -> None:
    """Move the pointer over the first chart; `part` is 0 at the left and 1 at the right."""
    browser.run(
        "const chart = document.querySelector('#users svg'); "
        "const box = chart.getBoundingClientRect(); "
        "chart.dispatchEvent(new PointerEvent('pointermove', { bubbles: true, "
        f"clientX: box.left + {part} * box.width, clientY: box.top + 5 }}))"
    )


def press(browser: Browser, key: str) -> None:
    browser.run(
        "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', "
        f"{{key: {json.dumps(key)}, bubbles: true, cancelable: true}}))"
    )


def colours(browser: Browser) -> dict[str, int]:
    """Return the number in the palette of each user's curve of shares."""
    strokes = browser.run(
        "const palette = getComputedStyle(document.documentElement); "
        "const ink = document.createElement('i'); document.body.append(ink); "
        "const shown = [...Array(8).keys()].map((number) => { "
        "ink.style.color = palette.getPropertyValue('--u' + number); "
        "return getComputedStyle(ink).color; }); ink.remove(); "
        "return [...document.querySelectorAll('#users svg')].map((each) => [each.dataset.user, "
        "shown.indexOf(getComputedStyle(each.querySelector('.share')).stroke)])"
    )
    return dict(strokes)


def choose(browser: Browser, select: str, value: str) -> None:
    browser.run(
        f"const list = document.getElementById({json.dumps(select)}); "
        f"list.value = {json.dumps(value)}; list.dispatchEvent(new Event('change'))"
    )


def shown_headings(browser: Browser) -> list[str]:
    """Return the headings of the first user's visible numbers on a phone."""
    headings: list[str] = browser.run(
        "return [...document.querySelectorAll('#users tr:first-child td[data-heading]')]"
        ".filter((each) => each.offsetWidth && "
        "getComputedStyle(each, '::before').content !== 'none')"
        ".map((each) => each.dataset.heading)"
    )
    return headings


def click(browser: Browser, selector: str) -> None:
    browser.run(f"document.querySelector({json.dumps(selector)}).click()")


def search(browser: Browser, text: str) -> None:
    browser.run(
        "const field = document.getElementById('search'); "
        f"field.value = {json.dumps(text)}; field.dispatchEvent(new Event('input'))"
    )


def headings(browser: Browser) -> list[str]:
    headings: list[str] = browser.run(
        "return [...document.querySelectorAll('#headings th')].map((each) => "
        "each.querySelector('button')?.textContent ?? 'over time')"
    )
    return headings


def cells(browser: Browser, column: str) -> list[str]:
    texts: list[str] = browser.run(
        f"return [...document.querySelectorAll('#users td[data-heading=\"{column}\"]')]"
        ".map((each) => each.textContent)"
    )
    return texts


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_an_accessibility_checker_finds_nothing(width: int, tmp_path: Path) -> None:
    need_a_browser()
    checker = axe()
    if checker is None:
        pytest.skip("axe-core-python is not installed, so accessibility is not checked")
    with busy_service(tmp_path) as (running, _), browsing(tmp_path, width) as browser:
        browser.open(running.metrics_url.removesuffix("metrics"))
        browser.wait_for("#users", "owing")
        browser.run("document.querySelector('#users .name').click()")
        browser.wait_for("#why", "has rank")
        browser.run("document.querySelector('#users svg').focus()")
        browser.wait_for("#reading", "share")
        assert browser.violations(checker) == []
