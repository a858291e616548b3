"""TLS credentials for clients of the allocator service."""

import os
from dataclasses import dataclass
from pathlib import Path

import grpc

from allocator.files import read_regular_file

AUTHORITY, CERTIFICATE, KEY = "LONGSHARE_CA", "LONGSHARE_CERTIFICATE", "LONGSHARE_KEY"
"""Environment variables with the paths of a client's TLS files."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Paths of a client's TLS files in PEM format. Without files, the channel is not encrypted."""

    authority: Path | None = None
    """Certificate of the authority that signed the service's certificate."""
    certificate: Path | None = None
    key: Path | None = None

    @classmethod
    def of_environment(cls) -> "Identity":
        """Return an identity with the paths in the environment variables, which may be unset."""
        authority, certificate, key = (
            Path(os.environ[name]) if os.environ.get(name) else None
            for name in (AUTHORITY, CERTIFICATE, KEY)
        )
        return cls(authority, certificate, key)

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Read the files and return gRPC credentials. None: no files are given; use no encryption.

        Raises:
            OSError: a file cannot be read.
            ValueError: only some of the necessary files are given.
        """
        if self.authority is None:
            if self.certificate is not None or self.key is not None:
                raise ValueError(
                    f"{CERTIFICATE} and {KEY} need {AUTHORITY}, the service's authority"
                )
            return None
        if (self.certificate is None) != (self.key is None):
            raise ValueError(f"set {CERTIFICATE} and {KEY} together, or neither")
        return grpc.ssl_channel_credentials(
            root_certificates=_pem(self.authority, AUTHORITY, "CERTIFICATE"),
            private_key=None if self.key is None else _pem(self.key, KEY, "PRIVATE KEY"),
            certificate_chain=(
                None
                if self.certificate is None
                else _pem(self.certificate, CERTIFICATE, "CERTIFICATE")
            ),
        )


def _pem(path: Path, variable: str, kind: str) -> bytes:
    """Return the content of a PEM file.

    Args:
        path: The file.
        variable: Name of the file's environment variable, for the error.
        kind: Last words of the content's first line, as in PEM: "PRIVATE KEY".

    Raises:
        OSError: the file cannot be read.
        ValueError: the file has another format.
    """
    content = read_regular_file(path)
    if f"{kind}-----".encode() not in content:  # gRPC would call the service unavailable
        raise ValueError(f"{path} holds no {kind.lower()} in PEM format; correct {variable}")
    return content
