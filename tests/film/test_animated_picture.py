"""The program `docs/animate.py` turns a film into an animated SVG picture."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from allocator.film.camera import Camera
from allocator.film.pack import pack
from allocator.film.page import page
from tests.film.test_film import ABOUT, agent, user
from tests.service.browser import browsing, chromedriver

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-m", "docs.animate")
SVG = "{http://www.w3.org/2000/svg}"


def picture_of(folder: Path) -> Path:
    """Write a picture of ten seconds, in which user `b` takes a quarter of an agent."""
    camera = Camera(1.0)
    for second in range(11):
        b = 1000 * (second >= 5)
        users = [user("<a>", 1 - b / 4000, turn=1), user("b", b / 4000, b / 8000, turn=2)]
        camera.take(float(second), users, [agent("s", **{"<a>": 4000 - b, "b": b})])
    film, picture = folder / "film.html", folder / "film.svg"
    film.write_bytes(page(pack(camera.reel, ABOUT)))
    subprocess.run([*PROGRAM, film, picture], cwd=ROOT, check=True)
    return picture


def test_a_picture_shows_the_parts_of_agents_that_users_hold_over_time(tmp_path: Path) -> None:
    drawn = ET.fromstring(picture_of(tmp_path).read_text())
    heights = [
        [int(height) for height in bar.attrib["values"].split(";")]
        for bar in drawn.iter(f"{SVG}animate")
        if bar.attrib["attributeName"] == "height"
    ]
    whole = max(heights[0])
    assert heights[0] == [whole] * len(heights[0]), "the last user's part reaches the top"
    assert heights[1][0] == whole
    assert heights[1][-1] == round(0.75 * whole)
    assert {"<a>", "b", "Commitments"} <= {text.text for text in drawn.iter(f"{SVG}text")}


@pytest.mark.slow
def test_a_picture_rests_for_readers_that_prefer_reduced_motion(tmp_path: Path) -> None:
    if chromedriver() is None:
        pytest.skip("chromium and chromedriver are not installed")
    picture = picture_of(tmp_path)
    with browsing(tmp_path, 840) as browser:  # with a preference for reduced motion
        browser.open(picture.as_uri())
        shown = browser.run(
            "return [...document.querySelectorAll('g > rect')]"
            ".filter((each) => getComputedStyle(each).display !== 'none')"
            ".map((each) => [each.getAttribute('class'), each.getBoundingClientRect().height])"
        )
        (_, whole), (_, both), (_, first) = shown
        assert [name for name, _ in shown] == [None, "still", "still"]
        assert first / whole == pytest.approx(0.75, abs=0.02), "the end of the film"
        assert both == whole
        assert browser.run(
            "return [...document.querySelectorAll('.lines')]"
            ".every((each) => getComputedStyle(each).clipPath === 'none')"
        )


def test_a_file_that_is_no_film_is_named(tmp_path: Path) -> None:
    unrelated = tmp_path / "other.html"
    unrelated.write_text("nothing")
    run = subprocess.run(
        [*PROGRAM, unrelated, tmp_path / "x.svg"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert f"{unrelated} is not a time machine" in run.stderr
