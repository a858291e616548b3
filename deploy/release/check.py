"""Check the requirements of a release without publishing: `make release-check`.

Each result is printed as soon as it is known. `python deploy/release/check.py 'Python 3.11'` runs
only the named checks, for example after a repair.

The artifacts to publish are written to build/release: the distributions, the list of their contents
(CycloneDX), and the notes.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from rich.console import Console

ROOT = Path(__file__).parents[2]
OUT = ROOT / "build" / "release"
DIST = OUT / "dist"
SBOM = OUT / "longshare.cdx.json"
NOTES = OUT / "notes.md"
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_RELEASED = re.compile(r"(\d+\.\d+\.\d+) \(\d{4}-\d{2}-\d{2}\)")


GRAFANAS = ("12.4.11", "13.2.3")
"""Versions of Grafana with schemas for the dashboards."""
TYPESCRIPT = "5.9.3"
TYPES = """\
import type { Dashboard } from '@grafana/schema';
import type { Options as stat } from '{raw}/stat/panelcfg/x/types.gen';
import type { Options as timeseries, FieldConfig } from '{raw}/timeseries/panelcfg/x/types.gen';
type Plain<T> = T extends string ? `${T}` : T extends (infer U)[] ? Plain<U>[]
  : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
type Part<T> = T extends (infer U)[] ? Part<U>[]
  : T extends object ? { [K in keyof T]?: Part<T[K]> } : T;
""".replace("{raw}", "./node_modules/@grafana/schema/dist/types/raw/composable")
"""Types of dashboards and panels: plain strings in place of enumerations, and optional fields."""


PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
TIMEOUT = "600"
"""Seconds after which a test fails. The checks also run on a busy machine, with several workers."""
QUICK = ("api", "cluster", "contract", "fairness")
"""Folders of tests that show differences between Pythons in results and messages."""


class Missing(Exception):  # noqa: N818 - it names what a release misses
    """An unmet requirement of a release; the text says how to meet the requirement."""


def run(*command: str | Path, where: Path = ROOT, **environment: str) -> str:
    """Run a command and return its output.

    Raises:
        Missing: The command failed; the text ends with its last lines of output.
    """
    done = subprocess.run(  # noqa: S603 - these commands are ours
        [str(part) for part in command],
        cwd=where,
        env={"PYTEST_TIMEOUT": TIMEOUT, **os.environ, **environment},
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        last = "\n".join(done.stdout.splitlines()[-15:])
        raise Missing(f"{' '.join(map(str, command))}\n{last}")
    return done.stdout


def project() -> dict[str, str]:
    """Return the project's part of pyproject.toml."""
    table: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return table


def sections(changelog: str) -> list[tuple[str, str]]:
    """Return the headings of a changelog with their texts, newest first."""
    headings = list(_HEADING.finditer(changelog))
    ends = [*(heading.start() for heading in headings[1:]), len(changelog)]
    return [
        (heading[1], changelog[heading.end() : end].strip())
        for heading, end in zip(headings, ends, strict=True)
    ]


def version() -> str:
    """Check that the version is the newest of the changelog, has a date, and matches any tag."""
    ours = project()["version"]
    heading, notes = sections((ROOT / "CHANGELOG.md").read_text("utf-8"))[0]
    released = _RELEASED.fullmatch(heading)
    if released is None or released[1] != ours:
        raise Missing(
            f'CHANGELOG.md begins with "{heading}": for the release of version {ours} in '
            f'pyproject.toml, change this heading to "{ours} (YYYY-MM-DD)", and give CITATION.cff '
            "the same date"
        )
    tags = run("git", "tag", "--points-at", "HEAD").split()
    if tags and f"v{ours}" not in tags:
        raise Missing(f"this commit is tagged {', '.join(tags)}, the version is {ours}")
    NOTES.write_text(notes + "\n", encoding="utf-8")
    return f"{ours}, {'tagged' if tags else 'not tagged yet'}"


def committed() -> str:
    """Check that there are no uncommitted changes: the tag must hold the sources of the build."""
    changed = run("git", "status", "--porcelain").strip()
    if changed:
        raise Missing(f"commit or remove:\n{changed}")
    return run("git", "rev-parse", "--short", "HEAD").strip()


def distributions() -> str:
    """Built twice, the distributions are the same, byte for byte, and an index would take them."""
    instant = run("git", "log", "-1", "--format=%ct").strip()
    folders = [OUT / "build-first", OUT / "build-second"]
    for folder in (DIST, *folders):  # of an earlier or interrupted check
        shutil.rmtree(folder, ignore_errors=True)
    builds = [_built(folder, instant) for folder in folders]
    first, second = ({path.name: _hash(path) for path in build.iterdir()} for build in builds)
    differing = sorted(
        name for name in first.keys() | second.keys() if first.get(name) != second.get(name)
    )
    if differing:
        raise Missing(f"two builds of one commit differ: {', '.join(differing)}")
    builds[0].rename(DIST)
    shutil.rmtree(builds[1])
    run(tool("twine"), "check", "--strict", *sorted(DIST.iterdir()))
    return ", ".join(f"{name} {first[name][:8]}…" for name in sorted(first))


def _built(folder: Path, instant: str) -> Path:
    """Build the distributions of a fresh checkout as `make dist` does."""
    source = folder.with_suffix(".source")
    shutil.rmtree(source, ignore_errors=True)
    run("git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), source)
    python = sys.executable
    wheel = ("pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps")
    run(
        *(python, "-W", "ignore", "-m", *wheel, "--no-build-isolation", "--use-pep517"),
        *("--wheel-dir", folder, source / "packages/pymesos", source),
        SOURCE_DATE_EPOCH=instant,
    )
    for module, where in (
        ("setuptools.build_meta", source),
        ("build_backend", source / "packages/pymesos"),
    ):
        make = (
            f"import sys; sys.path.insert(0, '.'); import {module} as b; b.build_sdist(sys.argv[1])"
        )
        run(python, "-W", "ignore", "-c", make, folder, where=where, SOURCE_DATE_EPOCH=instant)
    for archive in folder.glob("*.tar.gz"):
        _settle(archive, int(instant))
    shutil.rmtree(source)
    return folder


def _settle(archive: Path, instant: int) -> None:
    """Repack an archive without the machine and time stamps that setuptools adds."""
    with tarfile.open(archive) as packed:
        files = [(member, packed.extractfile(member)) for member in packed if member.isfile()]
        contents = sorted((member.name, member.mode, data.read()) for member, data in files if data)
    with (
        archive.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=instant) as stream,
        tarfile.open(fileobj=stream, mode="w") as settled,
    ):
        for name, mode, data in contents:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(data), mode, instant
            settled.addfile(entry, io.BytesIO(data))


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def bill_of_materials() -> str:
    """Check that the list of a service's packages has hashes and is valid CycloneDX.

    The list includes the packages of accounting.
    """
    pinned = OUT / "service.txt"
    parts = (ROOT / "requirements" / f"{name}.txt" for name in ("runtime", "accounting"))
    pinned.write_text("\n".join(part.read_text("utf-8") for part in parts), encoding="utf-8")
    run(
        *(tool("cyclonedx-py"), "requirements", pinned),
        *("--pyproject", ROOT / "pyproject.toml", "--mc-type", "application"),
        *("--output-reproducible", "--of", "JSON", "-o", SBOM),
    )
    pinned.unlink()
    listed = json.loads(SBOM.read_text("utf-8"))
    unhashed = [
        part["name"]
        for part in listed["components"]
        if not any(reference.get("hashes") for reference in part.get("externalReferences", []))
    ]
    if unhashed:
        raise Missing(f"without a hash: {', '.join(unhashed)}")
    return f"{len(listed['components'])} components, CycloneDX {listed['specVersion']}"


def workflows() -> str:
    """Check the workflows with a security linter."""
    folder = ROOT / ".github" / "workflows"
    run(tool("zizmor"), "--offline", "--persona=auditor", "--quiet", folder)
    uses = re.findall(r"uses: (\S+)", "\n".join(file.read_text() for file in folder.iterdir()))
    loose = [use for use in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", use)]
    if loose:
        raise Missing(f"not pinned by commit: {', '.join(loose)}")
    return f"{len(uses)} uses of actions, each pinned by commit"


def dashboards() -> str:
    """Check the dashboards against the published types of each version of Grafana."""
    if shutil.which("npm") is None:
        return "not run: npm is not installed"
    for grafana in GRAFANAS:
        folder = OUT / f"grafana-{grafana}"
        folder.mkdir(exist_ok=True)
        (folder / "package.json").write_text("{}", encoding="utf-8")
        (folder / "check.ts").write_text(typed_dashboards(), encoding="utf-8")
        packages = (f"@grafana/schema@{grafana}", f"typescript@{TYPESCRIPT}")
        quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--silent")
        run("npm", "install", *quiet, *packages, where=folder)
        compiler = folder / "node_modules" / ".bin" / "tsc"
        options = ("--noEmit", "--strict", "--skipLibCheck", "--module", "node16")
        run(compiler, *options, "check.ts", where=folder)
        shutil.rmtree(folder)
    return f"the schemas of Grafana {' and '.join(GRAFANAS)} have their types"


def typed_dashboards() -> str:
    """Return the dashboards as TypeScript, each part with its type of Grafana's schema."""
    lines = [TYPES]
    for path in sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json")):
        dashboard = json.loads(path.read_text("utf-8"))
        for annotation in dashboard["annotations"]["list"]:
            # The data source defines these two fields.
            del annotation["titleFormat"], annotation["target"]["expr"]
        lines.append(_typed(path.stem, "Plain<Dashboard>", dashboard))
        for row in dashboard["panels"]:
            for panel in row.get("panels") or [row]:
                name, kind = f"{path.stem}{panel['id']}", panel["type"]
                if kind != "row":
                    lines.append(_typed(name, f"Part<Plain<{kind}>>", panel["options"]))
                if kind == "timeseries":
                    custom = panel["fieldConfig"]["defaults"]["custom"]
                    lines.append(_typed(f"{name}lines", "Part<Plain<FieldConfig>>", custom))
    return "\n".join(lines)


def _typed(name: str, kind: str, value: object) -> str:
    return f"export const {name}: {kind} = {json.dumps(value)};"


def documentation() -> str:
    """Build this version's documentation in a copy and publish it beside other versions there."""
    copy = OUT / "docs.source"
    shutil.rmtree(copy, ignore_errors=True)
    run("git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), copy)
    try:
        for key, value in {"user.name": "release", "user.email": "release@localhost"}.items():
            run("git", "config", key, value, where=copy)
        for version in ("0.0", _minor()):
            run(sys.executable, "docs/versions.py", version, where=copy)
        pages = run("git", "ls-tree", "-r", "--name-only", "gh-pages", where=copy).split()
        expected = {f"{folder}/index.html" for folder in ("0.0", _minor(), "latest")}
        if not expected < set(pages):
            raise Missing(f"gh-pages has no {', '.join(sorted(expected - set(pages)))}")
        return f"{_minor()} beside an older one, {sum(p.endswith('.html') for p in pages)} pages"
    finally:
        shutil.rmtree(copy)


def _minor() -> str:
    """Return the minor version: documentation of a patch release replaces its predecessor's."""
    return project()["version"].rpartition(".")[0]


def on_python(name: str) -> str:
    """Test the packages, installed by name, and the engine on a Python of this machine."""
    home = ROOT / f".venv-{name}"
    if name == "{}.{}".format(*sys.version_info):
        home = Path(sys.prefix)
    elif python := _python(name):
        run("make", "dev", f"PYTHON={python}", f"VENV={home.name}")
    else:
        return "not run: this machine has no such Python"
    run(home / "bin" / "pytest", "-q", "tests/packages")
    quick = ("-m", "not slow", *(f"tests/{folder}" for folder in QUICK))
    done = run(home / "bin" / "pytest", "-q", "-n", "auto", *quick, LONGSHARE_HYPOTHESIS="again")
    return done.splitlines()[-1].strip("= ")


def every_test() -> str:
    """Run all tests with all examples and seeds; `.ci/run` leaves out a part of both."""
    pytest = Path(sys.executable).with_name("pytest")
    done = run(pytest, "-q", "-n", "auto", LONGSHARE_HYPOTHESIS="longshare")
    return done.splitlines()[-1].strip("= ")


def sanitizers() -> str:
    """Test the C++ transport with each sanitizer."""
    return run("make", "--no-print-directory", "sanitize").splitlines()[-1].strip("= ")


def compiled() -> str:
    """Run tests of the engine on optimised compiled modules."""
    return run("make", "--no-print-directory", "compiled-tests").splitlines()[-1].strip("= ")


def newer_debian() -> str:
    """Run quick tests on the Pythons of Debian's testing suite, as root with debootstrap."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        return "not run: `make newer` needs root and debootstrap"
    output = run("make", "--no-print-directory", "newer")
    pythons = re.findall(r"^platform linux -- Python (\S+),", output, re.MULTILINE)
    results = re.findall(r"^=+ (.* passed.*?) =+$", output, re.MULTILINE)
    return "; ".join(map(": ".join, zip(pythons, results, strict=True)))


def _python(version: str) -> Path | None:
    """Return a working Python of a version, from the path or from pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    on_path = shutil.which(f"python{version}")
    candidates = [Path(on_path)] if on_path else []
    for candidate in [*candidates, *sorted((pyenv / "versions").glob(f"{version}.*/bin/python3"))]:
        with suppress(Missing):
            run(candidate, "-c", "import ensurepip, venv")
            return candidate
    return None


def tool(name: str) -> Path:
    """Return a program of the environment that `make release-check` creates."""
    return ROOT / ".venv-release" / "bin" / name


CHECKS: dict[str, Callable[[], str]] = {
    "version": version,
    "all committed": committed,
    "distributions": distributions,
    "bill of materials": bill_of_materials,
    "workflows": workflows,
    "dashboards": dashboards,
    "versioned documentation": documentation,
    **{f"Python {name}": partial(on_python, name) for name in PYTHONS},
    "every test": every_test,
    "sanitizers": sanitizers,
    "compiled modules": compiled,
    "newer Debian": newer_debian,
}


def main() -> int:
    """Run the checks, print the result of each check, and return 0 if all passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checks", nargs="*", help=f"by default all: {', '.join(CHECKS)}")
    asked = parser.parse_args().checks or list(CHECKS)
    if unknown := set(asked) - CHECKS.keys():
        parser.error(f"no such checks: {', '.join(sorted(unknown))}")
    console = Console(markup=False, highlight=False, soft_wrap=True)
    if asked == list(CHECKS):
        shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in asked:
        try:
            with console.status(f"{name} …"):
                result = f"yes, {CHECKS[name]()}"
        except Missing as missing:
            failed.append(name)
            result = f"NO, {missing}"
        console.print(f"{name}: {result}")
    if not failed and asked == list(CHECKS):
        console.print(f"To be published: {OUT.relative_to(ROOT)}/")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
