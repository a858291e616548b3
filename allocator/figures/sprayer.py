"""Flows that are hashed to cores, against packets that are sprayed over them: a model.

The thesis's Sprayer is a system of its own, which nothing here is part of. What can be computed
is what follows from how flows fall on cores: k flows, each hashed to one of 8 cores alike. How many
are on each core has finitely many patterns, so means are sums over all of them, not draws.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from allocator.figures.figure import Line, Panel, PaperFigure

CORES = 8
CLOCK = 2.0e9
"""Of a core, cycles per second (thesis, section 3.4)."""
CYCLES = 10_000
"""For a packet (Figure 3.7)."""
PACKETS = CLOCK / CYCLES / 1e6
"""Millions a second that a core can process."""
PAYLOAD = 1448
"""Bytes of a full TCP segment over Ethernet, with timestamps."""
LINK = 10.0 * PAYLOAD / 1538
"""Gbit/s of payload that a 10 Gbit/s Ethernet carries: 1,538 bytes on the wire a segment."""
TCP = PACKETS * PAYLOAD * 8 / 1e3
"""Gbit/s of payload that a core can process."""
FLOWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40)


def patterns(flows: int, cores: int = CORES) -> Iterator[tuple[tuple[int, ...], float]]:
    """Go through how many flows may be on each busy core, largest first, with the probabilities.

    As many as there are ways to write `flows` as a sum of at most `cores` numbers: 3,319 for 32.
    """
    everything = math.factorial(flows) * math.factorial(cores)
    for parts in _sums(flows, cores, flows):
        alike = [parts.count(size) for size in set(parts)] + [cores - len(parts)]
        ways = everything // math.prod(map(math.factorial, [*parts, *alike]))
        yield parts, ways / cores**flows


def _sums(total: int, most: int, largest: int) -> Iterator[tuple[int, ...]]:
    if total == 0:
        yield ()
    elif most > 0:
        for first in range(min(total, largest), 0, -1):
            if first * most < total:
                return
            for rest in _sums(total - first, most - 1, first):
                yield (first, *rest)


@dataclass(frozen=True, slots=True)
class Spread:
    """What a number is over all patterns, weighed by how likely they are."""

    mean: float
    deviation: float
    low: float
    """5 % of experiments are below."""
    high: float
    """And 5 % above."""


def spread(values: Sequence[tuple[float, float]]) -> Spread:
    """Return mean, deviation and quantiles of values with probabilities."""
    mean = math.fsum(value * chance for value, chance in values)
    square = math.fsum((value - mean) ** 2 * chance for value, chance in values)
    low, high, seen = math.nan, math.nan, 0.0
    for value, chance in sorted(values):
        seen += chance
        if math.isnan(low) and seen >= 0.05:
            low = value
        if math.isnan(high) and seen >= 0.95 - 1e-9:
            high = value
    return Spread(mean, math.sqrt(max(square, 0.0)), low, high)


@dataclass(frozen=True, slots=True)
class Hashed:
    """What becomes of so many flows that are hashed to cores."""

    packets: Spread
    """Millions a second."""
    tcp: Spread
    """Gbit/s."""
    jain: Spread
    """Jain's index of what the cores process of each flow."""


def hashed(flows: int) -> Hashed:
    """Return what flows that are hashed to cores get; each could keep its core busy alone."""
    packets, tcp, jain = [], [], []
    for on_core, chance in patterns(flows):
        busy = len(on_core)
        packets.append((busy * PACKETS, chance))
        tcp.append((min(LINK, busy * TCP), chance))
        jain.append((busy * busy / (flows * math.fsum(1 / n for n in on_core)), chance))
    return Hashed(spread(packets), spread(tcp), spread(jain))


def sprayer() -> PaperFigure:
    """Return Figures 3.7 and 3.9 of the thesis as far as a model goes."""
    of = [hashed(flows) for flows in FLOWS]
    sprayed, over_tcp = CORES * PACKETS, min(LINK, CORES * TCP)
    rows = tuple(
        (k, o.packets.mean, o.packets.deviation, sprayed, o.tcp.mean, over_tcp, o.jain.mean)
        for k, o in zip(FLOWS, of, strict=True)
    )
    return PaperFigure(
        name="sprayer",
        source="thesis, Figures 3.7 and 3.9",
        title="Hashing flows to 8 cores, or spraying packets: 10,000 cycles a packet",
        columns=(
            "flows",
            "hashed, Mpps",
            "±",
            "sprayed, Mpps",
            "hashed TCP, Gbit/s",
            "sprayed TCP, Gbit/s",
            "hashed, Jain's index",
        ),
        rows=rows,
        panels=(
            _panel("Packets of 64 bytes", "Mpps", [o.packets for o in of], sprayed),
            _panel("TCP, at most", "Gbit/s of payload", [o.tcp for o in of], over_tcp),
            _panel("Fairness", "Jain's index", [o.jain for o in of], 1.0),
        ),
        ours="all of it: a model of how flows fall on cores, and of nothing else. It has no "
        "packets out of order and no congestion control, so not that TCP is a little faster hashed "
        "when flows are many; no latency (Figure 3.8); no limit of the network card (10 Mpps, "
        "Figure 3.6); no cycles beside the 10,000, none for acknowledgements. Sprayed packets fall "
        "on cores evenly at every instant, so their index is 1. Jain's index is of what cores "
        "process; where the link is what is full, a fair TCP would even out some of it. Bands hold "
        "90 % of what hashing may do, where the thesis has one deviation (3.7), or the least and "
        "the most of its runs (3.9)",
    )


def _panel(title: str, up: str, hashing: Sequence[Spread], spraying: float) -> Panel:
    return Panel(
        title,
        "flows",
        up,
        (
            Line.banded("hashed (RSS)", FLOWS, ((one.mean, one.low, one.high) for one in hashing)),
            Line("sprayed", FLOWS, (spraying,) * len(FLOWS)),
        ),
        logarithmic=True,
    )
