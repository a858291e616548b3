"""Builds the part of the C++ module that works without Mesos, or names missing tools."""

import fcntl
import functools
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "deploy/module"
SANITIZERS = ("address,undefined", "thread")
BUILDING = 1200
"""Seconds for a test that has to build first."""
_PACKAGES = ("grpc++", "protobuf-lite")


@dataclass(frozen=True)
class Programs:
    """The programs of a build variant."""

    folder: Path
    sanitizer: str

    @property
    def library(self) -> Path:
        return self.folder / "transport/liblongshare_transport.so"

    @property
    def driver(self) -> Path:
        return self.folder / "transport/tests/transport_driver"

    @property
    def unit_tests(self) -> Path:
        return self.folder / "transport/tests/transport_unit_tests"

    @property
    def adapter_unit_tests(self) -> Path:
        return self.folder / "adapter/tests/adapter_unit_tests"

    @property
    def bounds_driver(self) -> Path:
        return self.folder / "adapter/tests/bounds_driver"

    @property
    def environment(self) -> dict[str, str]:
        tests = SOURCE / "transport/tests"
        return os.environ | {
            "TSAN_OPTIONS": f"suppressions={tests / 'thread-sanitizer.txt'}",
            "LSAN_OPTIONS": f"suppressions={tests / 'leak-sanitizer.txt'}",
            # AddressSanitizer's records of thread-local memory sometimes crash the leak check while
            # a gRPC thread begins or ends, so these records are disabled.
            "ASAN_OPTIONS": "intercept_tls_get_addr=0",
        }


def missing() -> list[str]:
    """Return the tools and headers that the build needs and this machine lacks."""
    tools = [
        tool for tool in ("cmake", "c++", "pkg-config", "protoc") if shutil.which(tool) is None
    ]
    if "pkg-config" in tools:
        return tools
    return tools + [
        f"headers of {package}"
        for package in _PACKAGES
        if subprocess.run(["pkg-config", "--exists", package], check=False).returncode != 0
    ]


@functools.cache
def build(sanitizer: str = "") -> Programs:
    """Build a variant, or skip the test.

    Args:
        sanitizer: The value of `-fsanitize`. The default is that of the variable
            LONGSHARE_SANITIZER, or no sanitizer.
    """
    if sanitizer and not os.environ.get("LONGSHARE_SANITIZE"):
        pytest.skip("sanitizers are for `make sanitize`")
    sanitizer = sanitizer or os.environ.get("LONGSHARE_SANITIZER", "")
    lacking = missing()
    if lacking:
        pytest.skip(f"the C++ module is not built: there is no {', no '.join(lacking)}")
    programs = Programs(ROOT / ".cache/module" / (sanitizer or "plain"), sanitizer)
    programs.folder.mkdir(parents=True, exist_ok=True)
    with (programs.folder / "building").open("w") as lock:  # tests run side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        # The headers of gRPC take most of the time, so files of a library are compiled as one.
        together = ("-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=0")
        _run(
            *("cmake", "-S", SOURCE, "-B", programs.folder, f"-DLONGSHARE_SANITIZER={sanitizer}"),
            *(together if sanitizer else ()),
        )
        _run("cmake", "--build", programs.folder, "--parallel", os.cpu_count() or 1)
    return programs


def _run(*command: object) -> None:
    done = subprocess.run(
        [str(word) for word in command],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
