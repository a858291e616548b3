"""Users: which names of a job lead to the user that its resources count for."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from allocator.slurm.rows import (
    RejectedRecords,
    ShapeError,
    excerpt,
    percent_encoded,
    plain_name,
    shortened,
)
from allocator.slurm.timelines import UserPath

UserKey: TypeAlias = Literal["user", "account", "tree"]
NO_ACCOUNT = "(no account)"
"""The account of jobs without an account, as in a Slurm without slurmdbd."""
ASSOCIATION_COLUMNS = ("share", "user", "account", "id", "parentname")
"""Columns of `sacctmgr show associations`, in the order in which `read_associations` needs them.

sacctmgr has no other separator than a bar. The number (`id`) shows where the account ends.
"""
_ROW = re.compile(r"(\w+)\|([^|]*)\|")
_NUMBER = re.compile(r"\|(\d+)(?=\|)")
_LONGEST_ROW = 4096
_MOST_LEVELS = 15
"""Maximum number of accounts in a path. Below, accounts between are left out: an account then has
its own name below the first 14 accounts from the top."""
_BESIDE_ACCOUNT = " (user)"
"""Follows the name of a user that has the name of an account beside it."""


@dataclass(frozen=True)
class Associations:
    """The tree of accounts and its shares, as slurmdbd keeps them."""

    parents: Mapping[str, str] = field(default_factory=dict)
    """account → account above it, without accounts at the top"""
    shares: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(account, user) → shares; the user is empty for the account itself"""

    def path(self, account: str) -> UserPath:
        """Return the accounts from the top of the tree to an account, at most `_MOST_LEVELS`."""
        if not account:
            return (NO_ACCOUNT,)
        chain: dict[str, None] = {}
        above: str | None = account
        while above is not None and above not in self._paths and above not in chain:
            chain[above] = None
            above = self.parents.get(above)
        path = self._paths.get(above or "", ())
        for name in reversed(chain):
            path = (*path[: _MOST_LEVELS - 1], _path_part(name))
            if name in self.accounts:
                self._paths[name] = path
        return path

    @cached_property
    def _paths(self) -> dict[str, UserPath]:
        """Paths of accounts that slurmdbd knows, as far as computed."""
        return {}

    def user_path(self, user: str, account: str) -> UserPath:
        """Return the accounts from the top of the tree to an account, then a user.

        If an account below the same account has the user's name, the user is called `NAME (user)`.
        """
        path = self.path(account)
        name = _path_part(user)
        is_account = user in self.accounts and self.path(user) == (*path, name)
        return (*path, name + _BESIDE_ACCOUNT if is_account else name)

    @cached_property
    def accounts(self) -> frozenset[str]:
        """The names of all accounts that slurmdbd knows."""
        return frozenset(account for account, _ in self.shares) | self.parents.keys()

    def weights(self, key: UserKey) -> dict[UserPath, float]:
        """Return the weight of each node that has shares.

        A user's shares differ between accounts. So they count in the tree only.
        """
        if key == "user":
            return {}
        weights: dict[UserPath, float] = {}
        for (account, user), share in self.shares.items():
            if key == "account":
                if not user:
                    weights[(_unreserved(account),)] = share
            else:
                path = self.user_path(user, account) if user else self.path(account)
                weights[path] = share
        return weights


def _path_part(name: str) -> str:
    """Return a name as a part of a path, in which slashes separate parts.

    `plain_name` has encoded percent signs, so no name contains the encoding of a slash.
    """
    if name in {"", ".", ".."}:
        return percent_encoded(name) or "%"
    part = _unreserved(name).replace("/", "%2F")
    return shortened(part, name)


def _unreserved(name: str) -> str:
    """Return a name of Slurm that no name of Longshare equals: `ann (user%29`."""
    if name == NO_ACCOUNT or name.endswith(_BESIDE_ACCOUNT):
        return f"{name[:-1]}{percent_encoded(')')}"
    return name


def read_associations(text: str, rejected: RejectedRecords | None = None) -> Associations:
    """Read the output of `sacctmgr --parsable2 --noheader show associations`.

    An association with the shares `parent` shares with its siblings above; it counts with weight 1.
    The shares of a user's associations below one account, for several partitions, are added.

    Args:
        text: Rows with the columns `ASSOCIATION_COLUMNS`, separated by bars.
        rejected: Counts unreadable associations.

    Raises:
        ShapeError: No row can be read; the message shows the first row.
    """
    parents: dict[str, str] = {}
    shares: dict[tuple[str, str], float] = {}
    rows, errors = _association_rows(text)
    for share, user, account, parent in rows:
        if account == "root" and not user:
            continue
        if not user and parent not in {"", "root"}:
            parents[account] = parent
        if share.isdecimal() and int(share):
            shares[account, user] = shares.get((account, user), 0.0) + float(share)
        elif share not in {"parent", "0"}:
            where = f"sacctmgr, {account}/{user}"
            errors.append(ShapeError(f"{where}: the share {share!r} is not a number"))
    if errors and not shares:
        raise errors[0]
    for error in errors:
        if rejected is not None:
            rejected.add("sacctmgr", error)
    return Associations(parents, shares)


def _association_rows(text: str) -> tuple[list[tuple[str, str, str, str]], list[ShapeError]]:
    """Return the share, user, account and parent of each row, and errors of the other rows."""
    by_number: dict[str, list[tuple[str, str, str, str]]] = {}
    errors = []
    row = ""
    for line in text.split("\n"):
        row = f"{row}\n{line}" if row else line
        match = _ROW.match(row)
        numbers = [] if match is None else list(_NUMBER.finditer(row, match.end()))
        if match is not None and not numbers and len(row) < _LONGEST_ROW:
            continue  # the account has a line break
        if match is not None and len(numbers) == 1:
            account, parent = row[match.end() : numbers[0].start()], row[numbers[0].end() + 1 :]
            names = plain_name(match[2]), plain_name(account), plain_name(parent)
            by_number.setdefault(numbers[0][1], []).append((match[1], *names))
        elif row:
            expected = ", ".join(ASSOCIATION_COLUMNS)
            errors.append(ShapeError(f"sacctmgr printed no columns {expected}: {excerpt(row)}"))
        row = ""
    if row:
        errors.append(ShapeError(f"sacctmgr printed a row without an end: {excerpt(row)}"))
    rows = []
    for number, same in by_number.items():
        if len(same) == 1:
            rows += same
        else:
            errors.append(ShapeError(f"sacctmgr printed several rows of association {number}"))
    return rows, errors


def user_path(user: str, account: str, key: UserKey, associations: Associations) -> UserPath:
    """Return the path from the root to the user that a job's resources count for.

    Args:
        user: The job's user.
        account: The job's account; empty if there is none.
        key: Whether resources count for users, for accounts, or in the tree of accounts.
        associations: The tree of accounts.
    """
    if key == "user":
        return (user,)
    if key == "account":
        return (_unreserved(account) if account else NO_ACCOUNT,)
    return associations.user_path(user, account)
