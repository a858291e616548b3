"""Builds Debian packages for this machine's Debian: `make packages`.

The services for Mesos and for Slurm always; the module when the sources of a Mesos are named. They
are left in build/packages.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
IS_CHECKOUT = (ROOT / ".git").exists()
"""False in an unpacked source archive."""
OUT = ROOT / "build" / "packages"
PYTHON = Path("/usr/bin/python3")
"""Debian's, which the service runs on."""
RELEASE = "".join(platform.freedesktop_os_release().get(key, "") for key in ("ID", "VERSION_ID"))
"""Such as debian13. Each release has its own Python, and so needs its own packages."""
HOME = "opt/longshare"
SERVICES = {"longshare": "longshare", "longshare-slurm": "slurm"}
"""Package and unit of each service, and the user that runs the service."""
MAINTAINER = "The Longshare authors <longshare@example.org>"
NEEDED = {
    "dpkg-buildpackage": "dpkg-dev",
    "dh": "debhelper",
    "gcc": "gcc",
    f"{PYTHON}-config": "python3-dev",
    str(PYTHON): "python3-venv",
}
_MESOS = re.compile(r"^AC_INIT\(\[mesos\], \[([^]]+)\]\)$", re.MULTILINE)


def run(*command: str | Path, where: Path = ROOT, **environment: str) -> str:
    """Run a command and return its output; exit with the output if the command fails."""
    done = subprocess.run(  # noqa: S603 - these commands are ours
        [str(part) for part in command],
        cwd=where,
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise SystemExit(f"{last}\n{' '.join(map(str, command))} has failed")
    return done.stdout.strip()


def commit_time() -> int:
    """Return the commit's time, in seconds since the Unix epoch.

    The files of an unpacked source archive have the commit's time.
    """
    if IS_CHECKOUT:
        return int(run("git", "log", "-1", "--format=%ct"))
    return int((ROOT / "pyproject.toml").stat().st_mtime)


def version(instant: int) -> str:
    """Return the project's version, with the commit's time appended between releases.

    Versions from a source archive always have the commit's time. The end names Debian's release, so
    that packages of the next release replace them.
    """
    ours: str = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    if not (IS_CHECKOUT and f"v{ours}" in run("git", "tag", "--points-at", "HEAD").split()):
        ours += f"+{datetime.fromtimestamp(instant, UTC):%Y%m%d%H%M%S}"
    return f"{ours}+{RELEASE}"


def sources(name: str, recipe: Path, instant: int) -> Path:
    """Create the folder from which a package is built; return its path."""
    folder = OUT / "sources" / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(recipe, folder / "debian")
    (folder / "debian/rules").chmod(0o755)
    shutil.copy(HERE / "copyright", folder / "debian")
    date = datetime.fromtimestamp(instant, UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
    (folder / "debian/changelog").write_text(
        f"{name} ({version(instant)}) unstable; urgency=medium\n\n"
        f"  * See CHANGELOG.md.\n\n -- {MAINTAINER}  {date}\n"
    )
    return folder


def environment(folder: Path) -> None:
    """Install the service into a virtual environment of Debian's Python, as if it were in /opt."""
    home = folder / HOME
    run(PYTHON, "-m", "venv", "--without-pip", home)
    pip = (sys.executable, "-W", "ignore", "-m", "pip", "--disable-pip-version-check", "--no-input")
    wheels = folder / "wheels"
    compiling = (f"PYTHON={PYTHON}", f"VENV=.venv-{RELEASE}", f"COMPILED_DIST={wheels}")
    run("make", "compiled-wheel", *compiling)
    install = (*pip, "--python", home / "bin/python", "install", "--quiet", "--no-deps")
    requirements = [ROOT / f"requirements/{name}.txt" for name in ("runtime", "accounting")]
    pinned = [word for file in requirements for word in ("-r", file)]
    run(*install, "--no-compile", "--only-binary=:all:", "--require-hashes", *pinned)
    run(*install, "--no-compile", "--no-index", *wheels.glob("*.whl"))
    shutil.rmtree(wheels)
    for script in (home / "bin").iterdir():
        if script.name != "longshare" and not script.is_symlink():
            script.unlink()
    for named in (home / "bin/longshare", home / "pyvenv.cfg"):
        named.write_text(named.read_text().replace(str(home), f"/{HOME}"))
    # The service may not write in this folder, so imported modules are compiled at build time.
    run(
        *(home / "bin/python", "-m", "compileall", "-q", "-j", "0"),
        *("--invalidation-mode", "unchecked-hash", "-s", folder, "-p", "/", home / "lib"),
    )


def services(instant: int) -> Path:
    """Lay out the packages of both services, which install the same programs."""
    folder = sources("longshare", HERE / "service", instant)
    rotation = (ROOT / "deploy/logrotate/longshare").read_text("utf-8")
    for name, user in SERVICES.items():
        shutil.copy(ROOT / f"deploy/systemd/{name}.service", folder / "debian")
        for shared in ("links", "postrm"):
            shutil.copy(HERE / "service" / shared, folder / f"debian/{name}.{shared}")
        (folder / f"debian/{name}.logrotate").write_text(
            rotation.replace("longshare.service", f"{name}.service").replace(
                "su longshare longshare", f"su {user} {user}"
            )
        )
    shutil.copy(ROOT / "deploy/systemd/longshare.sysusers", folder / "longshare.conf")
    shutil.copy(ROOT / "docs/longshare.toml", folder)
    (folder / "slurm").mkdir()
    shutil.copy(ROOT / "docs/longshare-slurm.toml", folder / "slurm/longshare.toml")
    shutil.copy(ROOT / "CHANGELOG.md", folder)
    environment(folder)
    return folder


def module(mesos: Path, instant: int) -> tuple[Path, Path]:
    """Lay out the module's package; return its folder, and the folder of its build."""
    named = _MESOS.search((mesos / "configure.ac").read_text("utf-8"))
    if named is None:
        raise SystemExit(f"{mesos}/configure.ac does not say which version of Mesos this is")
    name = f"longshare-module-{named[1]}"
    folder = sources(name, HERE / "module", instant)
    control = folder / "debian/control"
    control.write_text(control.read_text().replace("@MESOS@", named[1]))
    for example in ("modules.json", "master.env"):
        shutil.copy(ROOT / "deploy/module" / example, folder)
    return folder, OUT / "compiled" / named[1]


def package(folder: Path, instant: int, **variables: str) -> None:
    """Build packages beside their source folder, then move them to the folder of packages."""
    # The folder is new. Debian 13's dh_clean would delete the compiled modules in it.
    build = ("dpkg-buildpackage", "--build=binary", "--no-sign", "--no-pre-clean")
    options = {"SOURCE_DATE_EPOCH": str(instant), "DEB_BUILD_OPTIONS": "noautodbgsym"}
    run(*build, where=folder, **options, **variables)
    for built in folder.parent.glob("*.deb"):
        print(built.replace(OUT / built.name))


def main() -> None:
    """Build the requested packages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mesos", type=Path, help="the sources of a release of Mesos")
    parser.add_argument(
        "--protobuf", default="", help="protobuf 3.5.0, if Mesos's 3rdparty lacks it"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    missing = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    if missing:
        raise SystemExit(f"apt-get install {' '.join(missing)}: packages cannot be built without")
    instant = commit_time()
    OUT.mkdir(parents=True, exist_ok=True)
    package(services(instant), instant)
    if asked.mesos:
        folder, compiled = module(asked.mesos.resolve(), instant)
        package(
            folder,
            instant,
            CHECKOUT=str(ROOT),
            BUILT=str(compiled),
            MESOS_SOURCE=str(asked.mesos.resolve()),
            PROTOBUF_SOURCE=asked.protobuf and str(Path(asked.protobuf).resolve()),
            JOBS=str(asked.jobs),
        )


if __name__ == "__main__":
    main()
