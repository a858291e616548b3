"""Users: which names of a job lead to the user that its resources count for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from allocator.slurm.jobs import ShapeError
from allocator.slurm.timelines import UserPath

UserKey: TypeAlias = Literal["user", "account", "tree"]
NO_ACCOUNT = "(no account)"
"""The account of jobs without an account, as in a Slurm without slurmdbd."""
ASSOCIATIONS = ("account", "user", "parentname", "share")
"""Columns of `sacctmgr show associations`, in the order in which `read_associations` needs them."""


@dataclass(frozen=True)
class Associations:
    """The tree of accounts and its shares, as slurmdbd keeps them."""

    parents: Mapping[str, str] = field(default_factory=dict)
    """account → account above it, without accounts at the top"""
    shares: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(account, user) → shares; the user is empty for the account itself"""

    def path(self, account: str) -> UserPath:
        """Return the accounts from the top of the tree to an account."""
        names = [account or NO_ACCOUNT]
        while (above := self.parents.get(names[-1])) is not None and above not in names:
            names.append(above)
        return tuple(reversed(names))

    def user_path(self, user: str, account: str) -> UserPath:
        """Return the accounts from the top of the tree to an account, then a user.

        If an account below the same account has the user's name, the user is called `NAME (user)`.
        """
        path = self.path(account)
        is_account = user in self.accounts and self.path(user) == (*path, user)
        return (*path, f"{user} (user)" if is_account else user)

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
                    weights[(account,)] = share
            else:
                path = self.user_path(user, account) if user else self.path(account)
                weights[path] = share
        return weights


def read_associations(text: str) -> Associations:
    """Read the output of `sacctmgr --parsable2 --noheader show associations`.

    An association with the shares `parent` shares with its siblings above; it counts with weight 1.
    The shares of a user's associations below one account, for several partitions, are added.

    Args:
        text: Rows with the columns `ASSOCIATIONS`, separated by bars.

    Raises:
        ShapeError: A row has other columns, or shares are not numbers.
    """
    parents: dict[str, str] = {}
    shares: dict[tuple[str, str], float] = {}
    for line in filter(None, text.splitlines()):
        fields = line.split("|")
        if len(fields) != len(ASSOCIATIONS):
            raise ShapeError(
                f"sacctmgr printed {len(fields)} columns instead of {', '.join(ASSOCIATIONS)}: "
                f"{line!r}"
            )
        account, user, parent, share = fields
        if account == "root" and not user:
            continue
        if not user and parent not in {"", "root"}:
            parents[account] = parent
        if share.isdecimal() and int(share):
            shares[account, user] = shares.get((account, user), 0.0) + float(share)
        elif share not in {"parent", "0"}:
            raise ShapeError(f"sacctmgr, {account}/{user}: the share {share!r} is not a number")
    return Associations(parents, shares)


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
        return (account or NO_ACCOUNT,)
    return associations.user_path(user, account)
