"""Fig. 1 of the TSF paper: placement constraints as a bipartite graph of users and machines.

The paper is "Multi-Resource Fair Sharing for Datacenter Jobs with Placement Constraints" (Wang, Li,
Liang and Li, SC 2016).
"""

from collections.abc import Mapping

from allocator.figures.figure import Line, Panel, PaperFigure

EDGES: Mapping[str, tuple[str, ...]] = {
    "u1": ("m1", "m2", "m3"),
    "u2": ("m1", "m2", "m3", "m4"),
    "u3": ("m3",),
    "u4": ("m2", "m4"),
}
"""Machines on which each user can run tasks, as the caption of Fig. 1 lists them."""


def components(edges: Mapping[str, tuple[str, ...]]) -> list[frozenset[str]]:
    """Return the connected components of a constraint graph: sets of users and machines.

    Args:
        edges: Machines that each user may use.
    """
    merged: list[frozenset[str]] = []
    for user, machines in edges.items():
        joined = frozenset((user, *machines))
        touching = [component for component in merged if component & joined]
        merged = [component for component in merged if not component & joined]
        merged.append(joined.union(*touching))
    return merged


def constraint_graph() -> PaperFigure:
    """Return Fig. 1 of the TSF paper: four users, four machines, and an edge for each permission.

    An edge means that the user may run tasks on the machine.
    """
    users = list(EDGES)
    machines = sorted({machine for usable in EDGES.values() for machine in usable})
    nodes = [*(Line(user, (position,), (1,)) for position, user in enumerate(users))]
    nodes += [Line(machine, (position,), (0,)) for position, machine in enumerate(machines)]
    return PaperFigure(
        name="tsf-1",
        source="Task Share Fairness, Fig. 1",
        title="Placement constraints as a bipartite graph",
        columns=("user", *machines),
        rows=tuple(
            (user, *("yes" if machine in EDGES[user] else "no" for machine in machines))
            for user in users
        ),
        panels=(
            Panel(
                title="an edge: the user can run tasks on the machine",
                across="",
                up="",
                rows=("machines", "users"),
                lines=tuple(nodes),
                kind="graph",
                links=tuple(
                    (users.index(user), len(users) + machines.index(machine))
                    for user, usable in EDGES.items()
                    for machine in usable
                ),
            ),
        ),
        ours="only the layout; the caption names every edge",
        facts={
            "edges": sum(map(len, EDGES.values())),
            "connected components": len(components(EDGES)),
        },
    )
