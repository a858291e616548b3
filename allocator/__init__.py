"""Longshare: long-term fair sharing for Apache Mesos."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("longshare")
except PackageNotFoundError:  # a checkout that is run without having been installed
    __version__ = "0+unknown"
