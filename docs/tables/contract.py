"""The contract as Markdown: services, messages and fields with the comments of the protos."""

import re
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)
from grpc_tools import protoc

PROTO = Path(__file__).parents[2] / "proto"
_FOLDER = "allocator/contract/"
_SCALARS = {
    value: name.removeprefix("TYPE_").lower() for name, value in FieldDescriptorProto.Type.items()
}
_Path = tuple[int, ...]


def text(file: str) -> str:
    """Return the services, messages and enumerations of a proto."""
    proto = _protos()[_FOLDER + file]
    comments = {
        tuple(place.path): place.leading_comments or place.trailing_comments
        for place in proto.source_code_info.location
    }
    syntax = next(place for place in proto.source_code_info.location if list(place.path) == [12])
    introduction = syntax.leading_detached_comments[0]
    parts = [_prose(introduction)]
    for number, service in enumerate(proto.service):
        parts.extend(_service(service, (6, number), comments))
    for number, message in enumerate(proto.message_type):
        parts.extend(_message(message, (4, number), comments))
    for number, enumeration in enumerate(proto.enum_type):
        parts.extend(_enumeration(enumeration, (5, number), comments))
    return "\n\n".join(filter(None, parts)) + "\n"


@cache
def _protos() -> dict[str, FileDescriptorProto]:
    """Return the contract's protos by path, parsed with their comments."""
    names = [str(path.relative_to(PROTO)) for path in sorted((PROTO / _FOLDER).glob("*.proto"))]
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "descriptors")
        well_known = files("grpc_tools") / "_proto"
        status = protoc.main(
            [
                *("protoc", f"-I{PROTO}", f"-I{well_known}", "--include_source_info"),
                *(f"--descriptor_set_out={out}", *names),
            ]
        )
        if status:
            raise SystemExit(status)
        parsed = FileDescriptorSet.FromString(out.read_bytes())
    return {file.name: file for file in parsed.file}


def _service(
    service: ServiceDescriptorProto, path: _Path, comments: dict[_Path, str]
) -> Iterator[str]:
    yield f"### Service `{service.name}`"
    yield _prose(comments.get(path, ""))
    rows = []
    for number, call in enumerate(service.method):
        request, answer = _short(call.input_type), _short(call.output_type)
        if call.client_streaming:
            request = f"stream of {request}"
        if call.server_streaming:
            answer = f"stream of {answer}"
        rows.append([f"`{call.name}`", request, answer, _cell(comments, (*path, 2, number))])
    yield _table(["call", "request", "answer", "meaning"], rows)


def _message(
    message: DescriptorProto, path: _Path, comments: dict[_Path, str], within: str = ""
) -> Iterator[str]:
    name = within + message.name
    yield f"### `{name}`"
    yield _prose(comments.get(path, ""))
    maps = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    rows = [
        [f"`{field.name}`", _type(field, maps), _cell(comments, (*path, 2, number))]
        for number, field in enumerate(message.field)
    ]
    if rows:
        members = [
            f"`{field.name}`"
            for field in message.field
            if field.HasField("oneof_index") and not field.proto3_optional
        ]
        if members:
            names = "" if len(members) == len(rows) else f" {', '.join(members)}"
            yield f"A message has a single field among the alternatives{names}:"
        yield _table(["field", "type", "meaning"], rows)
    for number, nested in enumerate(message.nested_type):
        if nested.name not in maps:
            yield from _message(nested, (*path, 3, number), comments, f"{name}.")
    for number, enumeration in enumerate(message.enum_type):
        yield from _enumeration(enumeration, (*path, 4, number), comments, f"{name}.")


def _enumeration(
    enumeration: EnumDescriptorProto, path: _Path, comments: dict[_Path, str], within: str = ""
) -> Iterator[str]:
    yield f"### `{within}{enumeration.name}`"
    yield _prose(comments.get(path, ""))
    rows = [
        [f"`{value.name}`", str(value.number), _cell(comments, (*path, 2, number))]
        for number, value in enumerate(enumeration.value)
    ]
    yield _table(["value", "number", "meaning"], rows)


def _type(field: FieldDescriptorProto, maps: dict[str, Any]) -> str:
    """Return the type of a field in words."""
    entry = maps.get(field.type_name.rpartition(".")[2])
    if entry is not None:
        return f"map: {_type(entry.field[0], {})} → {_type(entry.field[1], {})}"
    kind = _short(field.type_name) if field.type_name else _SCALARS[field.type]
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"list of {kind}"
    return f"{kind}, optional" if field.proto3_optional else kind


def _short(name: str) -> str:
    """Return the name of a message without its package."""
    return f"`{re.sub(r'^[.]longshare[.](v1|mesos)[.]', '', name)}`"


def _prose(comment: str) -> str:
    """Return a comment as Markdown; its indented lines keep their form."""
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", comment.strip("\n")):
        lines = [line.removeprefix(" ") for line in paragraph.splitlines()]
        if lines and all(line.startswith(" ") for line in lines):
            paragraphs.append("\n".join(["```text", *lines, "```"]))
        else:
            paragraphs.append(" ".join(line.strip() for line in lines))
    return "\n\n".join(paragraphs)


def _cell(comments: dict[_Path, str], path: _Path) -> str:
    return " ".join(comments.get(path, "").split()).replace("|", r"\|")


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
