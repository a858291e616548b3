"""The table of users keeps headings and names, and drops less important columns instead."""

import io

from rich.console import Console

from allocator.cli.tables import table_of_users
from allocator.contract import admin_pb2 as admin


def printed(users: list[admin.UserShare], width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, markup=False).print(table_of_users(users, width))
    return out.getvalue().splitlines()


def test_the_heading_of_short_names_is_whole() -> None:
    users = [admin.UserShare(user=name, rank=1, active=True) for name in "ab"]
    for width in (50, 60, 80, 120):
        assert "user" in " ".join(printed(users, width)).split()


def test_a_name_of_thirty_characters_is_whole_at_eighty_columns() -> None:
    name = "department-of-physics-simulation"[:30]
    demand = admin.Demand(amounts={"cpus": 1.0, "mem": 1024.0})
    user = admin.UserShare(
        user=name, rank=1, active=True, waits="too little free", demands=[demand]
    )
    assert any(name in line for line in printed([user], 80))


def test_reasons_are_shown_if_the_service_sends_them() -> None:
    waiting = admin.UserShare(user="a", rank=1, active=True, waits="task fits no agent")
    unknown = admin.UserShare(user="a", rank=1, active=True)
    assert any("task fits no agent" in line for line in printed([waiting], 120))
    assert not any("reason" in line for line in printed([unknown], 120))


def test_columns_that_do_not_fit_are_named() -> None:
    user = admin.UserShare(user="a" * 30, rank=1, active=True, waits="too little free")
    assert printed([user], 80)[-1].startswith("Too wide for this terminal: shortfall")
    assert not any("Too wide" in line for line in printed([user], 200))
