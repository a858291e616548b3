"""Writes a film as one HTML file with the player and its style, which loads nothing else."""

import base64
import gzip
import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from allocator import palette
from allocator.files import whole

_DATA = "@FILM@"


def page(film: dict[str, Any]) -> bytes:
    """Return the content of an HTML file that plays a film.

    Names in the film cannot inject HTML, because the film is embedded as compressed base64 text. In
    addition, the page's content security policy permits no script except the player.

    Args:
        film: The result of `pack`.
    """
    style, script = palette.style() + _part("player.css"), _part("player.js")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    packed = json.dumps(film, separators=(",", ":"), allow_nan=False).encode()
    data = base64.b64encode(gzip.compress(packed, mtime=0)).decode()
    text = _part("player.html")
    for name, part in (("@POLICY@", policy), ("@STYLE@", style), ("@SCRIPT@", script)):
        text = text.replace(name, part)
    before, _, after = text.partition(_DATA)
    return f"{before}{data}{after}".encode()


def write(path: Path, content: bytes) -> None:
    """Write a film's HTML file; an existing file is replaced once the new file is complete.

    Raises:
        OSError: the file cannot be written.
    """
    with whole(path) as temporary:
        temporary.write_bytes(content)


def _part(name: str) -> str:
    return files("allocator.film").joinpath("player", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
