"""Write a Ninja file for a master and an agent of clusterd, the fork of Mesos, without gRPC.

    python -m tests.mesos.clusterd SOURCES PROTOBUF BUILD && ninja -C BUILD -j 2

SOURCES is a checkout of clusterd. PROTOBUF is `third_party/protobuf` of the source archive of
grpcio-tools 1.10.1 (PyPI), because checkouts lack protobuf 3.5.0. BUILD then contains `PROGRAMS`.
docs/lab/real-mesos.md names the packages to install, and the result.

clusterd's own CMake needs gRPC, for CSI volumes. Undefined functions of clusterd, if any, become
traps: a call ends the program. The agent runs tasks as processes. CSI volumes, storage resource
providers, Docker, images and cgroups are not compiled.
"""

import argparse
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

ARCHIVES = (
    *("boost-1.81.0", "concurrentqueue-7b69a8f", "downloads/glog-0.6.1", "elfio-3.2"),
    *("http-parser-2.6.2", "leveldb-1.19", "libev-4.22", "picojson-1.3.0", "rapidjson-1.1.0"),
    "re2-2020-07-06",
)
"""Archives in clusterd's 3rdparty. clusterd's Versions.cmake names newer versions of some."""

LIBPROCESS = (
    "authenticator authenticator_manager clock firewall gtest_constants help http http_proxy io "
    "jwt jwt_authenticator latch logging memory_profiler metrics/metrics mime openssl pid "
    "posix/io posix/libev/libev posix/libev/libev_poll posix/poll_socket posix/subprocess process "
    "profiler reap socket ssl/openssl_socket ssl/utilities subprocess time"
)
"""Source files of libprocess, without gRPC."""

MASTER = re.compile(
    r"(auth(?!\w+/executor)\w+|files|hook|internal|log(?!/(main|tool))|logging|master|messages|module"
    r"|state|v1|version|watcher|zookeeper)/"
    r"|common/(?!command_utils|kernel_version)|slave/(constants|validation)$"
)
"""Source files of a master, from the CMakeLists.txt of clusterd."""

AGENT = re.compile(
    r"(checks|common|hdfs|posix|secret|status_update_manager|uri|uri/fetchers|usage)/\w+"
    r"|csi/paths|docker/spec|executor/executor|linux/(capabilities|cgroups2?|fs|ns|systemd)"
    r"|resource_provider/(\w+|storage/disk_profile_adaptor)"
    r"|slave/((?!csi)\w+|container_loggers/sandbox|\w+/noop|volume_gid_manager/\w+)"
    r"|slave/containerizer/((?!docker)\w+|device_manager/\w+|mesos/(io/switchboard|\w+))"
    r"|slave/containerizer/mesos/isolators/(filesystem/posix|gpu/(allocator|nvml)|network/cni/\w+)"
    r"|slave/containerizer/mesos/isolators/(environment_secret|posix/\w+|volume/sandbox_path)"
    r"|slave/containerizer/mesos/provisioner/(backends/)?\w+"
)
"""Further source files of an agent that runs tasks as processes, and of its executor."""

PROGRAMS = {
    "mesos-agent": "slave/main.cpp",
    "mesos-containerizer": "slave/containerizer/mesos/main.cpp",
    "mesos-executor": "launcher/executor.cpp",
    "mesos-master": "master/main.cpp",
}
"""Source files with `main`, by program."""

PROTOBUF = re.compile(
    r"(?!.*(test|mock|plugin))"
    r"((compiler/(cpp/)?|io/|stubs/)?\w+|util/(field_comparator|message_differencer))"
)
"""Source files of protobuf 3.5.0 in the master and in the compiler `protoc`."""

PRECOMPILED = (
    "mesos/mesos.hpp mesos/resources.hpp mesos/type_utils.hpp mesos/v1/mesos.hpp "
    "process/after.hpp process/async.hpp process/collect.hpp process/defer.hpp process/delay.hpp "
    "process/dispatch.hpp process/future.hpp process/help.hpp process/http.hpp process/id.hpp "
    "process/io.hpp process/loop.hpp process/owned.hpp process/process.hpp process/protobuf.hpp "
    "process/reap.hpp process/subprocess.hpp process/metrics/metrics.hpp stout/flags.hpp "
    "stout/foreach.hpp stout/hashmap.hpp stout/json.hpp stout/os.hpp stout/protobuf.hpp "
    "stout/uuid.hpp common/http.hpp common/protobuf_utils.hpp common/resources_utils.hpp "
    "common/validation.hpp internal/devolve.hpp internal/evolve.hpp master/master.hpp "
    "slave/slave.hpp slave/containerizer/mesos/containerizer.hpp"
)
"""Headers whose templates are instantiated once, instead of in each source file."""

PLAIN = "process|log|network/cni/cni|provisioner/utils|resource_provider/registrar"
"""Source files that do not compile after the precompiled headers: they specialize templates that
are instantiated there, or their names become ambiguous."""

RULES = """\
ninja_required_version = 1.5
flags = -std=c++14 -pipe -O0 -g0 -w -fPIC -pthread {flags}
rule cxx
  command = clang++-16 -MMD -MF $out.d $flags $more -c $in -o $out
  depfile = $out.d
  deps = gcc
rule header
  command = clang++-16 -MMD -MF $out.d $flags -fpch-instantiate-templates -x c++-header $in -o $out
  depfile = $out.d
  deps = gcc
rule run
  command = $run
rule link
  command = clang++-16 -fuse-ld=lld -pie -rdynamic -pthread -o $out @$out.objects $libraries
  rspfile = $out.objects
  rspfile_content = $in
rule traps
  command = nm --dynamic --undefined-only $in | awk '$$2 ~ /^_Z.*(5mesos|7process|3csi)/ $
    && $$2 !~ /^_ZTH/ {{ print ".globl " $$2; print $$2 ": ud2" }}' > $out.s && as $out.s -o $out
"""

THIRD = {
    "glog/lib/libglog.so": "cmake -S glog-0.6.1 -B glog-0.6.1/build -DBUILD_SHARED_LIBS=ON "
    "-DWITH_GFLAGS=OFF -DWITH_GTEST=OFF -DWITH_UNWIND=OFF "
    "-DBUILD_TESTING=OFF -DCMAKE_INSTALL_PREFIX=$$PWD/glog -DCMAKE_INSTALL_LIBDIR=lib "
    "&& cmake --build glog-0.6.1/build --target install",
    "leveldb-1.19/out-static/libleveldb.a": "make -C leveldb-1.19 OPT='-O2 -DNDEBUG -fPIC -w' "
    "out-static/libleveldb.a",
    "ev/lib/libev.a": "cd libev-4.22 && sh configure --disable-shared --with-pic "
    "--prefix=$$PWD/../ev && make install",
    "re2-2020-07-06/obj/libre2.a": "make -C re2-2020-07-06 obj/libre2.a "
    "CXXFLAGS='-O2 -fPIC -w -std=c++11 -pthread'",
    "http_parser.o": "cc -O2 -fPIC -DHTTP_PARSER_STRICT=0 -c http-parser-2.6.2/http_parser.c "
    "-o http_parser.o",
}
"""Commands to build the remaining libraries in clusterd's 3rdparty, by output."""

SHARED = (
    "-lzookeeper_mt -lsasl2 -lsvn_delta-1 -lsvn_diff-1 -lsvn_subr-1 -lapr-1 -lcurl -lssl "
    "-lcrypto -larchive -lz -lelf -ldl -lrt -lcrypt"
)
"""Libraries of Debian."""


def prepare(sources: Path, build: Path) -> None:
    """Unpack and patch 3rdparty, and write the headers of clusterd's CMake."""
    for archive in ARCHIVES:
        folder = build / Path(archive).name
        if folder.exists():
            continue
        shutil.unpack_archive(sources / f"3rdparty/{archive}.tar.gz", build)
        patch = sources / f"3rdparty/{archive}.patch"
        if patch.exists():
            subprocess.run(["patch", "-p1", "-s", "-i", patch], cwd=folder, check=True)
    cmake = (sources / "CMakeLists.txt").read_text()
    numbers = dict(re.findall(r"set\(MESOS_(MAJOR|MINOR|PATCH)_VERSION (\d+)\)", cmake))
    version = (sources / "include/mesos/version.hpp.in").read_text()
    version = version.replace("@PACKAGE_VERSION@", ".".join(numbers.values()))
    for name, number in numbers.items():
        version = version.replace(f"@MESOS_{name}_VERSION@", number)
    built = {"DATE": "", "TIME": "0", "FLAGS": ""}
    headers = {
        "mesos/version.hpp": version,
        "common/build_config.hpp": "".join(f'#define BUILD_{n} "{t}"\n' for n, t in built.items()),
        "common/git_version.hpp": "",
        # The agent includes these two headers of clusterd, but uses nothing that they declare.
        "csi/service_manager.hpp": "",
        "csi/volume_manager.hpp": "",
        "all.hpp": "".join(f"#include <{header}>\n" for header in PRECOMPILED.split()),
    }
    for name, text in headers.items():
        header = build / "generated" / name
        header.parent.mkdir(parents=True, exist_ok=True)
        if not header.exists() or header.read_text() != text:
            header.write_text(text)


class NinjaFile:
    """The edges of a build."""

    def __init__(self, flags: str) -> None:
        self.lines = [RULES.format(flags=flags)]

    def add(self, rule: str, output: str, inputs: Iterable[object], **variables: str) -> str:
        """Add an edge, and return the output."""
        self.lines.append(f"build {output}: {rule} {' '.join(map(str, inputs))}")
        self.lines += [f"  {name} = {value}" for name, value in variables.items()]
        return output


def write(sources: Path, protobuf: Path, build: Path) -> None:
    """Write build.ninja for a master and an agent of clusterd.

    Args:
        sources: Checkout of clusterd.
        protobuf: Folder of protobuf 3.5.0.
        build: Existing folder for build.ninja and everything that the build writes.
    """
    process, runtime = sources / "3rdparty/libprocess", protobuf / "src/google/protobuf"
    include = (
        *("generated", "generated/mesos", sources / "include", sources / "src", process / "src"),
        *(process / "include", sources / "3rdparty/stout/include", protobuf / "src"),
        *("boost-1.81.0", "glog/include", "picojson-1.3.0", "rapidjson-1.1.0/include"),
        *("elfio-3.2", "http-parser-2.6.2", "concurrentqueue-7b69a8f", "leveldb-1.19/include"),
        *("re2-2020-07-06", "ev/include", "/usr/include/zookeeper", "/usr/include/subversion-1"),
        "/usr/include/apr-1.0",
    )
    folders = ("LIBDIR", "PKGDATADIR", "PKGLIBEXECDIR", "PKGMODULEDIR")
    defined = (
        *("__STDC_FORMAT_MACROS", "USE_CMAKE_BUILD_CONFIG", "USE_SSL_SOCKET=1", "HAVE_LIBZ"),
        *("HAVE_PTHREAD=1", "HAVE_ZLIB=1", 'VERSION=\\"1.11.0\\"'),
        *(f'{name}=\\"{build}\\"' for name in folders),
    )
    ninja = NinjaFile(" ".join([f"-D{name}" for name in defined] + [f"-I{f}" for f in include]))

    def objects(group: str, files: Iterable[Path], needed: str, more: str = "") -> list[str]:
        return [
            ninja.add(
                "cxx",
                f"objects/{group}/{re.sub(r'[^a-zA-Z0-9_]', '_', str(file))}.o",
                [file, needed],
                more=more,
            )
            for file in files
        ]

    third = [ninja.add("run", output, [], run=command) for output, command in THIRD.items()]
    ninja.add("phony", "third", third)
    named = {str(path.relative_to(runtime))[:-3]: path for path in sorted(runtime.rglob("*.cc"))}
    kept = [name for name in named if PROTOBUF.fullmatch(name)]
    library = objects("protobuf", (named[n] for n in kept if "compiler/" not in n), "|| third")
    compiler = objects(
        "protoc",
        (named[name] for name in kept if "compiler/" in name),
        "|| third",
        "-DOPENSOURCE_PROTOBUF_CPP_BOOTSTRAP",
    )
    ninja.add("link", "protoc", library + compiler, libraries="-lz")
    messages = []
    for root in (sources / "include", sources / "src"):
        for proto in sorted(root.rglob("*.proto")):
            name = str(proto.relative_to(root).with_suffix(".pb"))
            if re.search(r"storage/|tests/|examples/", name):
                continue
            path = " ".join(f"-I{sources / folder}" for folder in ("include", "src"))
            ninja.add(
                "run",
                f"generated/{name}.cc | generated/{name}.h",
                [proto, "| protoc"],
                run=f"./protoc {path} -I{protobuf / 'src'} --cpp_out=generated {proto}",
            )
            messages.append(Path("generated", f"{name}.cc"))
    ninja.add("phony", "headers", ["third", *messages])
    ninja.add("header", "all.pch", ["generated/all.hpp", "|| headers"])

    def compiled(group: str, files: list[Path]) -> list[str]:
        plain = [file for file in files if re.search(f"/({PLAIN})\\.cpp$", str(file))]
        rest = [file for file in files if file not in plain]
        return [
            *objects("plain", plain, "|| headers"),
            *objects(group, rest, "| all.pch", "-include-pch all.pch"),
        ]

    def named_sources(names: Iterable[str]) -> list[Path]:
        return [sources / f"src/{name}.cpp" for name in names]

    cmake = {
        *re.findall(r"^ +([\w/]+)\.cpp", (sources / "src/CMakeLists.txt").read_text(), re.MULTILINE)
    }
    master = sorted(name for name in cmake if MASTER.match(name))
    agent = sorted(name for name in cmake - {*master} if AGENT.fullmatch(name))
    runtime_files = [process / f"src/{name}.cpp" for name in LIBPROCESS.split()]
    common = [
        *objects("messages", messages, "|| headers"),
        *compiled("master", runtime_files + named_sources(master)),
        *library,
        "http_parser.o",
    ]
    further = compiled("agent", named_sources(agent))
    # A static glog hides symbols of the module. clusterd's own build has a shared glog.
    bundled = " ".join(
        output for output in THIRD if output.startswith(("ev", "glog", "lev", "re2"))
    )
    libraries = f"{bundled} -Wl,-rpath,{build}/glog/lib {SHARED}"
    ignoring = f"{libraries} -Wl,--unresolved-symbols=ignore-all"
    for program, main in PROGRAMS.items():
        every = [*common, *compiled("programs", [sources / "src" / main])]
        if program != "mesos-master":
            every += further
        partial = ninja.add("link", f"{program}.partial", every, libraries=ignoring)
        traps = ninja.add("traps", f"{program}.traps.o", [partial])
        ninja.add("link", program, [*every, traps], libraries=libraries)
    ninja.lines.append(f"default {' '.join(PROGRAMS)}\n")
    (build / "build.ninja").write_text("\n".join(ninja.lines))


def main() -> None:
    """Prepare a build folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("sources", "protobuf", "build"):
        parser.add_argument(name, type=Path)
    asked = parser.parse_args()
    build = asked.build.resolve()
    build.mkdir(parents=True, exist_ok=True)
    prepare(asked.sources.resolve(), build)
    write(asked.sources.resolve(), asked.protobuf.resolve(), build)


if __name__ == "__main__":
    main()
