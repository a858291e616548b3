"""Users: which names of a job lead to the user that its resources count for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from allocator.fairness.bounds import LEAST_WEIGHT
from allocator.slurm.rows import (
    RejectedRecords,
    ShapeError,
    decoded,
    excerpt,
    percent_encoded,
    plain_name,
    reason_of,
    shortened,
)
from allocator.slurm.timelines import UserPath

UserKey: TypeAlias = Literal["user", "account", "tree"]
NO_ACCOUNT = "(no account)"
"""The account of jobs without an account, as in a Slurm without slurmdbd."""
ASSOCIATION_COLUMNS = (
    *("id%12", "parentid%12", "share%12"),
    *("user%-256", "account%-256", "account%256"),
)
"""Columns of `sacctmgr show associations`, with their widths in bytes.

sacctmgr prints names unchanged, and has no separator that a name cannot have. In columns of fixed
widths, no name can change another row. The second column of the account shows whether the account
ends with blanks.
"""
_WIDTHS = [abs(int(column.partition("%")[2])) for column in ASSOCIATION_COLUMNS]
_ROW_BYTES = sum(_WIDTHS) + len(_WIDTHS) + 1
"""Length of a row: a blank follows each column, then a line break."""
_MOST_LEVELS = 15
"""Maximum number of accounts in a path. Accounts further below count for the 15th account from the
top, so their shares apply to no account or user of this path."""
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
            if len(path) < _MOST_LEVELS:
                path = (*path, _path_part(name))
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

    def account_path(self, account: str) -> UserPath:
        """Return the accounts from the top of the tree to the user of an account's own jobs.

        An account may have users and sub-accounts, and only a leaf of the tree can have jobs. The
        own jobs of an account with sub-accounts therefore count for a leaf beside the sub-accounts.
        The leaf has the account's name, as in `physics/physics`: no sub-account has this name.
        """
        path = self.path(account)
        if account in self._with_sub_accounts and len(path) < _MOST_LEVELS:
            return (*path, path[-1])
        return path

    @cached_property
    def _with_sub_accounts(self) -> frozenset[str]:
        return frozenset(self.parents.values())

    @cached_property
    def accounts(self) -> frozenset[str]:
        """The names of all accounts that slurmdbd knows."""
        return frozenset(account for account, _ in self.shares) | self.parents.keys()

    def moves_out(self, former: "Associations") -> dict[str, tuple[str, str]]:
        """Return the accounts that are not below their former parents any more.

        Slurm 22.05 lets a coordinator move a sub-account to the top, or below an account of others,
        with any shares. The account would then take part of the entitlements of others. An account
        may only move to places below its former parent, as far as these moves form no cycle.

        Args:
            former: The tree before. If a former parent is removed, the next account above counts.

        Returns:
            The former parent and the new parent of each account; empty for the top.
        """
        kept = {
            account: self._remaining(former.parents.get(account, ""), former)
            for account in former.accounts & self.accounts
        }
        parents = {**self.parents, **kept}
        moves = {}
        for account in sorted(kept):
            before, above = kept[account], self.parents.get(account, "")
            if above == before:
                continue
            place = above
            while place not in {before, account, ""}:
                place = parents.get(place, "")
            if place == before:
                parents[account] = above
            else:
                moves[account] = before, above
        return moves

    def _remaining(self, account: str, former: "Associations") -> str:
        """Return the first account of a former path that still exists; empty for the top."""
        while account and account not in self.accounts:
            account = former.parents.get(account, "")
        return account

    def weights(self, key: UserKey) -> dict[UserPath, float]:
        """Return the weight of each node that has shares.

        As in Slurm, shares count among siblings: the accounts and users directly below an account.
        A coordinator can add accounts with any shares below its own account. These shares divide
        the entitlement of its account, and change no other entitlement.

        With `account`, the leaf for an account's own jobs (`account_path`) has the sum of the
        shares of the account's users. With `user`, no node has a weight: a user's shares differ
        between accounts.
        """
        weights: dict[UserPath, float] = {}
        if key == "user":
            return weights
        for (account, user), share in self.shares.items():
            path = self.path(account)
            if path == self.path(self.parents.get(account, "")):
                continue  # the account counts for an account above
            if not user:
                weights[path] = share
            elif key == "tree":
                weights[self.user_path(user, account)] = share
            else:
                leaf = self.account_path(account)
                if leaf != path:
                    weights[leaf] = weights.get(leaf, 0.0) + share
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


class _Association(NamedTuple):
    """A row of `sacctmgr show associations`."""

    number: str
    parent: str
    """Number of the association of the account above; `0` if there is none."""
    share: str
    user: str
    """Empty for an account itself."""
    account: str


def read_associations(printed: bytes, rejected: RejectedRecords | None = None) -> Associations:
    """Read the output of `sacctmgr --noheader show associations`.

    An association with the shares `parent` shares with its siblings above; it counts with weight 1.
    With 0 shares, Slurm starts all other jobs first; the association gets the least weight.
    The shares of a user's associations below one account, for several partitions, are added.

    Args:
        printed: Rows with the columns `ASSOCIATION_COLUMNS`.
        rejected: Counts unreadable associations.

    Raises:
        ShapeError: The rows have another form, or none of them can be read.
    """
    parents: dict[str, str] = {}
    shares: dict[tuple[str, str], float] = {}
    rows, errors = _association_rows(printed)
    accounts = {row.number: row.account for row in rows if not row.user}
    for _, parent, share, user, account in rows:
        if account == "root" and not user:
            continue
        where = f"sacctmgr, {account}/{user}"
        if parent not in accounts:
            errors.append(ShapeError(f"{where}: the account above, {parent}, is missing"))
            continue
        if not user and accounts[parent] != "root":
            parents[account] = accounts[parent]
        if share.isdecimal():
            weight = float(share) or LEAST_WEIGHT
            shares[account, user] = shares.get((account, user), 0.0) + weight
        elif share != "parent":
            errors.append(ShapeError(f"{where}: the share {share!r} is not a number"))
    if errors and not shares:
        raise errors[0]
    for error in errors:
        if rejected is not None:
            rejected.add("sacctmgr", reason_of(error))
    return Associations(parents, shares)


def _association_rows(printed: bytes) -> tuple[list[_Association], list[ShapeError]]:
    """Return all rows with readable names, and an error for each of the other rows.

    Raises:
        ShapeError: The output is no list of such rows.
    """
    numbers = set[str]()
    rows, errors = [], []
    for begin in range(0, len(printed), _ROW_BYTES):
        row = printed[begin : begin + _ROW_BYTES]
        columns, at = [], 0
        for width in _WIDTHS:
            columns.append(row[at : at + width])
            at += width + 1
        number, parent, share, user = (decoded(column.strip(b" ")) for column in columns[:4])
        is_whole = len(row) == _ROW_BYTES and row.endswith(b" \n")
        if not is_whole or not number.isdecimal() or not parent.isdecimal() or number in numbers:
            expected = ", ".join(ASSOCIATION_COLUMNS)
            shown = excerpt(decoded(row))
            raise ShapeError(f"sacctmgr printed no columns {expected}: {shown}")
        numbers.add(number)
        account = _unpadded(columns[4], columns[5])
        if account is None or len(user) >= _WIDTHS[3]:
            shown = excerpt(decoded(columns[4]))
            errors.append(ShapeError(f"sacctmgr cut names of association {number}: {shown}"))
        else:
            rows.append(_Association(number, parent, share, plain_name(user), plain_name(account)))
    return rows, errors


def _unpadded(padded_right: bytes, padded_left: bytes) -> str | None:
    """Return a name without the blanks of its column; None if the column cut the name.

    Args:
        padded_right: The name with blanks behind it.
        padded_left: The name with blanks before it, in the same number of bytes.
    """
    width = len(padded_right)
    own = width - len(padded_right.lstrip(b" "))
    length = width + own - (width - len(padded_left.lstrip(b" ")))
    if own == width:
        return ""
    name = padded_right[:length]
    if length >= width or name != padded_left[width - length :]:
        return None
    return decoded(name)


def user_path(user: str, account: str, key: UserKey, associations: Associations) -> UserPath:
    """Return the path from the root to the user that a job's resources count for.

    Args:
        user: The job's user.
        account: The job's account; empty if there is none.
        key: Whether resources count for users, for the accounts of the tree of accounts, or for
            users below these accounts.
        associations: The tree of accounts.
    """
    if key == "user":
        return (user,)
    if key == "account":
        return associations.account_path(account)
    return associations.user_path(user, account)
