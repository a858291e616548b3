"""Simulates with the compiled kernels if they support the setting, else in plain Python."""

from collections.abc import Callable

from allocator.simulation import fast, reference
from allocator.simulation.outcome import Outcome
from allocator.simulation.series import Series
from allocator.simulation.setting import Setting
from allocator.simulation.trace import Trace


def simulate(
    trace: Trace,
    setting: Setting,
    progress: Callable[[int], None] | None = None,
    *,
    events: bool = True,
    series: Series | None = None,
) -> Outcome:
    """Simulate a trace with the fast simulator if it supports the setting, else the reference.

    Both start each task at the same instant on the same machine.

    Args:
        trace: The submitted tasks.
        setting: The policy and the options of the simulation.
        progress: Called now and then with the number of tasks done so far.
        events: Whether the fast simulator counts operations and events of a Live Tree. The
            reference simulator always counts.
        series: Receives the users' shares and commitments at regular instants.

    Raises:
        SettingError: The setting does not fit the trace.
        PolicyFailedError: The policy raised an error.
    """
    if fast.supports(setting):
        return fast.simulate(trace, setting, progress, events=events, series=series)
    return reference.simulate(trace, setting, progress, series=series)
