"""Parses the option --group: groups of a trace's users, whose waits a command also compares."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from allocator.simulation.trace import Trace


def group_members(groups: list[str] | None, taken: Collection[str]) -> dict[str, list[str]]:
    """Parse options of the form NAME=USER,...; return the users of each group by its name.

    Args:
        groups: The values of the option; None for none.
        taken: Names that no group may have.

    Raises:
        typer.BadParameter: An entry has another form, or a name is taken.
    """
    members: dict[str, list[str]] = {}
    for entry in groups or []:
        name, _equals, users = entry.partition("=")
        if not name or not users:
            raise typer.BadParameter(
                f"{entry!r} is not NAME=USER,USER,..., such as team=ann,bob", param_hint="--group"
            )
        if name in {*taken, *members}:
            raise typer.BadParameter(
                f"the name {name} is taken; give each group another name", param_hint="--group"
            )
        members[name] = [user.strip() for user in users.split(",") if user.strip()]
    return members


def group_masks(trace: "Trace", members: Mapping[str, list[str]]) -> "dict[str, NDArray[np.bool_]]":
    """Return masks of the users of each group.

    Args:
        trace: The trace.
        members: Users by name of the group.

    Raises:
        ValueError: The trace has no such user.
    """
    import numpy as np

    from allocator.complaints import did_you_mean

    for name, users in members.items():
        for user in users:
            if user not in trace.users:
                raise ValueError(
                    f"--group {name}: the trace has no user {user}{did_you_mean(user, trace.users)}"
                )
    return {name: np.isin(trace.users, users) for name, users in members.items()}
