"""The sources of the adapter's build: a release of Mesos, or of clusterd, a fork of Mesos."""

import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.module.built import SOURCE, missing

pytestmark = pytest.mark.slow
BROUGHT = {"boost": "1.65.0", "glog": "0.3.3", "picojson": "1.3.0", "rapidjson": "1.1.0"}
GLOG = ("logging.h.in", "raw_logging.h.in", "stl_logging.h.in", "vlog_is_on.h.in", "log_severity.h")


VERSIONS = {
    "mesos": ("configure.ac", "AC_INIT([mesos], [1.8.0])\n"),
    "clusterd": (
        "CMakeLists.txt",
        "set(MESOS_MAJOR_VERSION 1)\nset(MESOS_MINOR_VERSION 8)\nset(MESOS_PATCH_VERSION 0)\n",
    ),
}
"""The file of each tree that has the version, and its content."""


@pytest.fixture(params=VERSIONS)
def mesos(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A tree with the layout of Mesos or clusterd, but without any source to compile."""
    tree = tmp_path / str(request.param)
    versioned, version = VERSIONS[request.param]
    written = {
        versioned: version,
        "include/mesos/version.hpp.in": '#define MESOS_VERSION "@PACKAGE_VERSION@"\n',
    }
    for name, text in written.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    for name, version in BROUGHT.items():
        brought = tmp_path / f"{name}-{version}"
        (brought / "src/glog").mkdir(parents=True)
        for header in GLOG:
            (brought / "src/glog" / header).write_text("// @ac_google_namespace@\n")
        aside = request.param == "clusterd" and name == "glog"
        folder = tree / "3rdparty" / ("downloads" if aside else "")
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(folder / f"{brought.name}.tar.gz", "w:gz") as packed:
            packed.add(brought, brought.name)
    return tree


def configured(mesos: Path, build: Path) -> subprocess.CompletedProcess[str]:
    lacking = missing()
    if lacking:
        pytest.skip(f"the C++ module is not built: there is no {', no '.join(lacking)}")
    options = (f"-DMESOS_SOURCE={mesos}", "-DLONGSHARE_TESTS=OFF")
    return subprocess.run(
        ["cmake", "-S", SOURCE, "-B", build, *options], capture_output=True, text=True, check=False
    )


def test_bundled_libraries_are_unpacked_and_missing_libraries_are_named_with_their_option(
    mesos: Path, tmp_path: Path
) -> None:
    completed = configured(mesos, tmp_path / "build")
    assert completed.returncode != 0
    message = " ".join(completed.stderr.split())
    assert "protobuf-3.5.0.tar.gz is missing" in message
    assert "-DPROTOBUF_SOURCE=FOLDER" in message
    generated = tmp_path / "build/mesos/generated"
    assert "1.8.0" in (generated / "mesos/version.hpp").read_text()
    assert (generated / "glog/logging.h").read_text() == "// google\n"


def test_a_folder_without_a_version_is_refused(mesos: Path, tmp_path: Path) -> None:
    versioned, _ = VERSIONS[mesos.name]
    (mesos / versioned).unlink()
    completed = configured(mesos, tmp_path / "build")
    assert completed.returncode != 0
    assert "is not the source tree of Mesos or clusterd" in " ".join(completed.stderr.split())


def test_a_missing_or_ambiguous_archive_is_named(mesos: Path, tmp_path: Path) -> None:
    (mesos / "3rdparty/boost-1.65.0.tar.gz").rename(mesos / "3rdparty/boost.tar.gz")
    completed = configured(mesos, tmp_path / "build")
    assert "has 0 archives boost-VERSION.tar.gz" in " ".join(completed.stderr.split())
    for version in ("1.65.0", "1.81.0"):
        (mesos / f"3rdparty/boost-{version}.tar.gz").touch()
    completed = configured(mesos, tmp_path / "build")
    assert "has 2 archives boost-VERSION.tar.gz" in " ".join(completed.stderr.split())
