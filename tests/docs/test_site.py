"""The documentation builds to a site in which every link leads to a page or file."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.service.browser import browsing, chromedriver

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]  # the first test builds the site

ROOT = Path(__file__).parents[2]
PAGES = sorted(page.relative_to(ROOT / "docs") for page in ROOT.glob("docs/**/*.md"))
NOTEBOOKS = sorted(page.relative_to(ROOT / "docs") for page in ROOT.glob("docs/**/*.ipynb"))


def build(pages: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build a site of pages with the options of `make docs`."""
    options = re.search(r"-m sphinx (.*) -d build/doctrees", (ROOT / "Makefile").read_text())
    assert options is not None
    return subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", *options[1].split()),
            *("-c", ROOT / "docs", "-d", site / "doctrees", pages, site / "html"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT / "docs", folder)
    assert built.returncode == 0, built.stderr
    return folder / "html"


def rendered(site: Path) -> list[Path]:
    """Return the pages of a site that are made of Markdown or notebooks."""
    return [site / page.with_suffix(".html") for page in [*PAGES, *NOTEBOOKS]]


def test_the_site_contains_every_page_and_every_linked_file(site: Path) -> None:
    for page in rendered(site):
        text = page.read_text()
        assert "site.css" in text
        for link, anchor in re.findall(r'(?:href|src)="([^":#]*)(?:#([^"]*))?"', text):
            target = (page.parent / unquote(link.partition("?")[0])).resolve() if link else page
            assert target.is_file(), (page.name, link)
            if anchor and target.suffix == ".html":
                assert f'id="{anchor}"' in target.read_text(), (page.name, link, anchor)


def test_the_site_contains_no_program_that_no_page_links_to(site: Path) -> None:
    programs = {path.name for path in site.rglob("*.*py*") if path.is_file()}
    assert programs == {path.name for path in ROOT.glob("docs/notebooks/*.*py*")}
    assert not [*site.rglob("__pycache__")]


def test_lists_and_tables_are_rendered_on_the_site(site: Path) -> None:
    for page in rendered(site):
        text = re.sub(r"<pre>.*?</pre>", "", page.read_text(), flags=re.DOTALL)
        for paragraph in re.findall(r"<p>(.*?)</p>", text, flags=re.DOTALL):
            assert not re.search(r"^(\* |- |1\. |\||```)", paragraph, re.MULTILINE), (
                f"{page.stem}.md wants an empty line before:\n{paragraph}"
            )


def test_the_sidebar_links_to_every_page_except_the_lab(site: Path) -> None:
    sidebar = re.search(r'class="sidebar-tree">(.*)', (site / "index.html").read_text(), re.DOTALL)
    assert sidebar is not None
    tree = sidebar[1].partition("</div>")[0]
    links = set(re.findall(r'class="reference internal" href="([^"#]+)"', tree))
    pages = {str(page.with_suffix(".html")) for page in [*PAGES, *NOTEBOOKS]}
    assert {page for page in pages if not page.startswith("lab/")} - {"index.html"} <= links
    assert not any(link.startswith("lab/") for link in links)


def test_the_first_page_links_to_every_page_except_those_of_the_lab() -> None:
    links = set(re.findall(r"\]\(([^)#]+\.md)", (ROOT / "docs" / "index.md").read_text()))
    pages = {str(page) for page in PAGES if not str(page).startswith("lab/")}
    assert pages - {"index.md"} == links - {"lab/index.md"}


def test_one_page_links_to_each_page_of_the_lab(site: Path) -> None:
    assert 'href="lab/index.html"' in (site / "index.html").read_text()
    article = (site / "lab" / "index.html").read_text().partition('id="lab-dated-measurements"')[2]
    for page in ROOT.glob("docs/lab/*.md"):
        assert page.stem == "index" or f'href="{page.stem}.html"' in article, page.name


def test_each_address_of_the_previous_site_leads_to_its_page(site: Path) -> None:
    moved = [page for page in site.rglob("*.html") if "location.replace(" in page.read_text()]
    assert len(moved) > 30
    for page in moved:
        address = re.search(r'location.replace\("([^"]+)"', page.read_text())
        assert address is not None
        assert (page.parent / address[1]).resolve() in rendered(site), page.name


def test_mistakes_in_pages_fail_the_build(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs" / "theme", tmp_path / "docs" / "theme")
    mistakes = {
        "[a page](nowhere.md)": "nowhere.md",
        "[an anchor](other.md#no-such-policy)": "no-such-policy",
        "[an anchor](#no-such-heading)": "no-such-heading",
        "[an address](/policies.md)": "policies.md",
        "[a file](../deploy/nothing)": "deploy/nothing",
    }
    (tmp_path / "docs" / "index.md").write_text("# First\n\n" + "\n\n".join(mistakes))
    (tmp_path / "docs" / "other.md").write_text("# A page that no other page contains\n")
    built = build(tmp_path / "docs", tmp_path / "site")
    assert built.returncode != 0
    for name in mistakes.values():
        assert re.search(rf"WARNING: .*{name}.*xref_missing", built.stderr), name
    assert re.search(r"other\.md: WARNING: document isn't included in any toctree", built.stderr)


@pytest.mark.slow
@pytest.mark.skipif(chromedriver() is None, reason="Chromium and chromedriver are not installed")
def test_a_search_of_a_site_that_is_opened_as_files_finds_pages(site: Path, tmp_path: Path) -> None:
    with browsing(tmp_path, 360) as browser:
        browser.open(f"{(site / 'search.html').as_uri()}?q=half-life")
        browser.wait_for("#search-results", "Glossary > Half-life")


@pytest.mark.slow
@pytest.mark.release  # opens each page; tests of three pages run at each commit
@pytest.mark.skipif(chromedriver() is None, reason="Chromium and chromedriver are not installed")
def test_no_page_is_wider_than_a_telephone(site: Path, tmp_path: Path) -> None:
    with browsing(tmp_path, 360) as browser:
        for page in rendered(site):
            browser.open(page.as_uri())
            assert browser.run("return document.documentElement.scrollWidth") == 360, page.name


@pytest.mark.slow
@pytest.mark.skipif(chromedriver() is None, reason="Chromium and chromedriver are not installed")
@pytest.mark.parametrize("name", ["configuration", "slurm-configuration", "metrics"])
def test_a_telephone_shows_reference_tables_whole_with_headings_and_roles(
    name: str, site: Path, tmp_path: Path
) -> None:
    with browsing(tmp_path, 360) as browser:
        browser.open((site / "reference" / f"{name}.html").as_uri())
        cut = (
            "return [...document.querySelectorAll('.table-wrapper, table.docutils td')]"
            ".filter((each) => each.scrollWidth > each.clientWidth + 1)"
            ".map((each) => each.innerText)"
        )
        assert browser.run(cut) == []
        cells = browser.run(
            "return [...document.querySelectorAll('table.sentences td')].map((cell) => ["
            "cell.role, cell.parentElement.role, Boolean(cell.dataset.heading) === "
            "(cell.parentElement.cells.length > 2 && Boolean(cell.textContent.trim()))])"
        )
        assert cells
        assert all(cell == ["cell", "row", True] for cell in cells)


def test_the_page_of_a_notebook_shows_its_printed_lines_and_figures(site: Path) -> None:
    page = (site / "notebooks" / "when_memory_pays.html").read_text()
    assert "without_memory" in page
    assert "mean wait of bursts\n" in page
    assert re.search(r'<img alt="[^"]+" src="data:image/png;base64,', page)


def test_links_of_pages_outside_the_site_lead_to_files() -> None:
    for page in ROOT.glob("*.md"):
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (ROOT / link).exists(), (page.name, link)
