"""One HTML file with its player, its style and its film inside, which asks nobody for anything."""

import base64
import gzip
import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from allocator.files import whole

_DATA = "@FILM@"


def page(film: dict[str, Any]) -> bytes:
    """Return the file. Nothing of the film is HTML: all of it is compressed, in base64.

    Even if it were, the page's own policy allows no script but its player.
    """
    style, script = _part("player.css"), _part("player.js")
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


def write(path: Path, made: bytes) -> None:
    """Write the file; one that is there already is replaced once the new one is complete.

    Raises:
        OSError: it cannot be written.
    """
    with whole(path) as part:
        part.write_bytes(made)


def _part(name: str) -> str:
    return files("allocator.film").joinpath("player", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
