"""The program `docs/animate.py` turns a film into an animated SVG picture."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

from allocator.film.camera import Camera
from allocator.film.pack import pack
from allocator.film.page import page
from tests.film.test_film import ABOUT, agent, user

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-m", "docs.animate")
SVG = "{http://www.w3.org/2000/svg}"


def test_a_picture_shows_the_parts_of_agents_that_users_hold_over_time(tmp_path: Path) -> None:
    camera = Camera(1.0)
    for second in range(11):
        b = 1000 * (second >= 5)
        users = [user("<a>", 1 - b / 4000, turn=1), user("b", b / 4000, b / 8000, turn=2)]
        camera.take(float(second), users, [agent("s", **{"<a>": 4000 - b, "b": b})])
    film, picture = tmp_path / "film.html", tmp_path / "film.svg"
    film.write_bytes(page(pack(camera.reel, ABOUT)))
    subprocess.run([*PROGRAM, film, picture], cwd=ROOT, check=True)
    drawn = ET.fromstring(picture.read_text())
    heights = [
        [int(height) for height in each.attrib["values"].split(";")]
        for each in drawn.iter(f"{SVG}animate")
        if each.attrib["attributeName"] == "height"
    ]
    whole = max(heights[0])
    assert heights[0] == [whole] * len(heights[0]), "the last user's part reaches the top"
    assert heights[1][0] == whole
    assert heights[1][-1] == round(0.75 * whole)
    assert {"<a>", "b", "Commitments"} <= {text.text for text in drawn.iter(f"{SVG}text")}


def test_a_file_that_is_no_film_is_named(tmp_path: Path) -> None:
    other = tmp_path / "other.html"
    other.write_text("nothing")
    run = subprocess.run(
        [*PROGRAM, other, tmp_path / "x.svg"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert f"{other} is not a time machine" in run.stderr
