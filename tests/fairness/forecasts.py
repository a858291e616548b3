"""Forecasts that are computed without pauses."""

from allocator.cooperative import run_to_completion
from allocator.fairness.forecast import Cost, ForecastTurn, Passing, cost, passings, turn
from allocator.fairness.pool import Pool
from allocator.fairness.quantities import Quantities


def forecast_passings(pool: Pool[str], user: str, until: float) -> list[Passing[str]]:
    return run_to_completion(passings(pool, user, until))


def forecast_turn(
    pool: Pool[str], user: str, demand: Quantities, tasks: int, until: float
) -> ForecastTurn:
    return run_to_completion(turn(pool, user, demand, tasks, until))


def forecast_cost(
    pool: Pool[str], user: str, burst: Quantities, seconds: float, until: float
) -> Cost[str]:
    return run_to_completion(cost(pool, user, burst, seconds, until))
