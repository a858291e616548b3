"""Commit this version's documentation to the branch gh-pages: `make versioned-docs`.

The branch has a folder for each minor version, a copy `latest` of the newest version's folder, and
a page that lists the versions.
"""

import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
BRANCH = "gh-pages"
_LIST = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Longshare: versions of the documentation</title>
<h1>Longshare: versions of the documentation</h1>
<ul>
{}
</ul>
</html>
"""


def publish(version: str) -> None:
    """Build the documentation, and commit the build as a version.

    Raises:
        CalledProcessError: The build or a command of git failed.
    """
    if not _git("branch", "--list", BRANCH):
        root = _git("commit-tree", _git("mktree"), "-m", "Begin the documentation's versions")
        _git("branch", BRANCH, root)
    with tempfile.TemporaryDirectory() as temporary:
        site = Path(temporary) / BRANCH
        _git("worktree", "add", "--quiet", str(site), BRANCH)
        try:
            shutil.rmtree(site / version, ignore_errors=True)
            build(site / version, "-A", "versions=1")
            _complete(site)
            _git("-C", str(site), "add", "--all", "--force")
            if _git("-C", str(site), "status", "--porcelain"):
                commit = _git("rev-parse", "--short", "HEAD")
                message = f"Deploy the documentation of {version}, commit {commit}"
                _git("-C", str(site), "commit", "--quiet", "-m", message)
        finally:
            _git("worktree", "remove", "--force", str(site))


def build(site: Path, *options: str) -> None:
    """Build the documentation as `make docs` does."""
    with tempfile.TemporaryDirectory() as doctrees:
        subprocess.run(  # noqa: S603 - the project's own command
            [
                *(sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"),
                *("-d", doctrees, *options, str(ROOT / "docs"), str(site)),
            ],
            check=True,
        )


def _complete(site: Path) -> None:
    """Renew the common parts of the branch: `latest` and the list of versions."""
    versions = sorted(
        (page.parent.name for page in site.glob("*.*/index.html")),
        key=lambda version: [int(part) for part in version.split(".")],
        reverse=True,
    )
    shutil.rmtree(site / "latest", ignore_errors=True)
    shutil.copytree(site / versions[0], site / "latest")
    links = [f'<li><a href="{version}/index.html">{version}</a>' for version in versions]
    (site / "index.html").write_text(_LIST.format("\n".join(links)), encoding="utf-8")
    (site / ".nojekyll").touch()  # GitHub would leave out the folders that begin with _


def _git(*arguments: str) -> str:
    """Return the output of a command of git."""
    done = subprocess.run(  # noqa: S603 - the project's own command
        ["git", *arguments],  # noqa: S607 - the git that is installed
        cwd=ROOT,
        check=True,
        input="",
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.strip()


if __name__ == "__main__":
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    publish(sys.argv[1] if len(sys.argv) > 1 else version.rpartition(".")[0])
