"""Makes the Python code of every contract in this folder: `make proto`."""

import argparse
import sysconfig
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

PROTO = Path(__file__).parent


def generate(out: Path) -> list[Path]:
    """Write messages, their types and, where a proto declares a service, its gRPC stubs.

    A proto's path below `proto/` is its code's path below `out`. Generated code that lies there
    already and belongs to a proto that is gone, or lost its services, is removed.

    Args:
        out: The folder that holds the packages, or shall hold them.

    Returns:
        The folders, relative to `out`, that hold generated code.

    Raises:
        SystemExit: A proto has an error; protoc has printed where.
    """
    protos = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    folders = sorted({Path(proto).parent for proto in protos})
    with tempfile.TemporaryDirectory() as scratch:
        descriptors = Path(scratch, "descriptors")
        _protoc(protos, f"--descriptor_set_out={descriptors}")
        parsed = FileDescriptorSet.FromString(descriptors.read_bytes())
    for folder in folders:
        for stale in (out / folder).glob("*_pb2*.py*"):
            stale.unlink()
    _protoc(protos, f"--python_out={out}", f"--mypy_out={out}")
    services = [file.name for file in parsed.file if file.service]
    _protoc(services, f"--grpc_python_out={out}", f"--mypy_grpc_out={out}")
    return folders


def _protoc(protos: Sequence[str], *outputs: str) -> None:
    """Run protoc; the plugins are those of this very environment, whatever PATH says."""
    scripts = Path(sysconfig.get_path("scripts"))
    plugins = [f"--plugin={scripts / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]
    well_known = files("grpc_tools") / "_proto"
    status = protoc.main(["protoc", f"-I{PROTO}", f"-I{well_known}", *plugins, *outputs, *protos])
    if status:
        raise SystemExit(status)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out",
        type=Path,
        default=PROTO.parent,
        help="folder that receives the packages (default: this repository)",
    )
    generate(parser.parse_args().out)
