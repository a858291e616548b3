"""The documentation builds to a site in which every link leads to a page or file."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def build(repository: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a repository as `make docs` does."""
    return subprocess.run(
        [*(sys.executable, "-m", "mkdocs", "build", "--site-dir", site)],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT, folder)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_contains_every_page_and_every_linked_file(site: Path) -> None:
    pages = {page.stem for page in ROOT.glob("docs/*.md")}
    assert pages - {page.stem for page in site.glob("*.html")} == set()
    for page in site.glob("*.html"):
        assert "site.css" in page.read_text()
        for link in re.findall(r'(?:href|src)="([^":#]+)["#]', page.read_text()):
            assert (site / link).is_file() or page.name == "404.html", (page.name, link)


def test_lists_and_tables_are_rendered_on_the_site(site: Path) -> None:
    for page in site.glob("*.html"):
        text = re.sub(r"<pre>.*?</pre>", "", page.read_text(), flags=re.DOTALL)
        for paragraph in re.findall(r"<p>(.*?)</p>", text, flags=re.DOTALL):
            assert not re.search(r"^(\* |- |1\. |\||```)", paragraph, re.MULTILINE), (
                f"{page.stem}.md wants an empty line before:\n{paragraph}"
            )


@pytest.mark.parametrize(
    ("links", "end"),
    [
        (
            ["nowhere.md", "reference/policies.md#no-such-policy", "/policies.md"],
            "Aborted with 3 warnings",  # each warning fails the build
        ),
        (["../deploy/nothing"], "there is no deploy/nothing in the repository"),
    ],
)
def test_a_broken_link_fails_the_build(links: list[str], end: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for item in ("allocator", "ansible", "bench", "deploy", "frameworks", "mkdocs.yml", "proto"):
        (tmp_path / item).symlink_to(ROOT / item)
    with (tmp_path / "docs" / "index.md").open("a") as page:
        page.writelines(f"\n[a mistake]({link})\n" for link in links)
    built = build(tmp_path, tmp_path / "site")
    assert built.returncode != 0
    assert end in built.stdout + built.stderr
    for link in links:
        assert link.rpartition("#")[2].removeprefix("../") in built.stderr


def test_links_of_pages_outside_the_site_lead_to_files() -> None:
    for page in ROOT.glob("*.md"):
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (ROOT / link).exists(), (page.name, link)
