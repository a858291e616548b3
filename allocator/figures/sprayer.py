"""Figures 3.7 and 3.9 of Sadok's thesis, by a model: flows hashed to cores, or packets sprayed.

The thesis's Sprayer is a separate system; nothing in Longshare is part of it. The model computes
the consequences of hashing k flows to 8 cores uniformly. The numbers of flows on the cores have
finitely many patterns. So means are sums over all patterns instead of random draws.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from allocator.figures.figure import Line, Panel, PaperFigure

CORES = 8
CLOCK = 2.0e9
"""Cycles per second of a core (thesis, section 3.4)."""
CYCLES = 10_000
"""Cycles for a packet (Figure 3.7)."""
PACKETS = CLOCK / CYCLES / 1e6
"""Packets that a core can process, in millions per second."""
PAYLOAD = 1448
"""Bytes of a full TCP segment over Ethernet, with timestamps."""
LINK = 10.0 * PAYLOAD / 1538
"""Payload that a 10 Gbit/s Ethernet carries, in Gbit/s; a segment takes 1,538 bytes on the wire."""
TCP = PACKETS * PAYLOAD * 8 / 1e3
"""Payload that a core can process, in Gbit/s."""
FLOWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40)


def patterns(flows: int, cores: int = CORES) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield all ways in which flows can be distributed over cores, with their probabilities.

    There are as many patterns as ways to write `flows` as a sum of at most `cores` numbers: 3,319
    patterns for 32 flows.

    Yields:
        The numbers of flows on the busy cores, largest first, and the probability.
    """
    permutations = math.factorial(flows) * math.factorial(cores)
    for parts in _sums(flows, cores, flows):
        repeats = [parts.count(size) for size in set(parts)] + [cores - len(parts)]
        ways = permutations // math.prod(map(math.factorial, [*parts, *repeats]))
        yield parts, ways / cores**flows


def _sums(total: int, count: int, largest: int) -> Iterator[tuple[int, ...]]:
    if total == 0:
        yield ()
    elif count > 0:
        for first in range(min(total, largest), 0, -1):
            if first * count < total:
                return
            for remaining in _sums(total - first, count - 1, first):
                yield (first, *remaining)


@dataclass(frozen=True, slots=True)
class Spread:
    """Distribution of a number, such as the throughput, over all random assignments of flows."""

    mean: float
    deviation: float
    """Standard deviation."""
    low: float
    """5 % quantile."""
    high: float
    """95 % quantile."""


def spread(values: Sequence[tuple[float, float]]) -> Spread:
    """Compute mean, standard deviation, and 5 % and 95 % quantiles of a random number.

    Args:
        values: Pairs of a possible value and its probability.
    """
    mean = math.fsum(value * chance for value, chance in values)
    square = math.fsum((value - mean) ** 2 * chance for value, chance in values)
    low, high, cumulated = math.nan, math.nan, 0.0
    for value, chance in sorted(values):
        cumulated += chance
        if math.isnan(low) and cumulated >= 0.05:
            low = value
        if math.isnan(high) and cumulated >= 0.95 - 1e-9:
            high = value
    return Spread(mean, math.sqrt(max(square, 0.0)), low, high)


@dataclass(frozen=True, slots=True)
class Hashed:
    """Throughput and fairness if a number of flows are assigned to CPU cores by a hash."""

    packets: Spread
    """Throughput in millions of packets per second."""
    tcp: Spread
    """Throughput of TCP payload in Gbit/s."""
    jain: Spread
    """Jain's index of the packets that the cores process for each flow."""


def hashed(flows: int) -> Hashed:
    """Compute throughput and fairness if `flows` network flows are assigned to cores by a hash.

    Each flow has enough packets to keep a core busy alone.
    """
    packets, tcp, jain = [], [], []
    for on_core, chance in patterns(flows):
        busy = len(on_core)
        packets.append((busy * PACKETS, chance))
        tcp.append((min(LINK, busy * TCP), chance))
        jain.append(
            (busy * busy / (flows * math.fsum(1 / flow_count for flow_count in on_core)), chance)
        )
    return Hashed(spread(packets), spread(tcp), spread(jain))


def sprayer() -> PaperFigure:
    """Compute Figures 3.7 and 3.9 of Sadok's thesis, as far as a model can reproduce them."""
    results = [hashed(flows) for flows in FLOWS]
    sprayed, over_tcp = CORES * PACKETS, min(LINK, CORES * TCP)
    rows = tuple(
        (
            flows,
            result.packets.mean,
            result.packets.deviation,
            sprayed,
            result.tcp.mean,
            over_tcp,
            result.jain.mean,
        )
        for flows, result in zip(FLOWS, results, strict=True)
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
            _panel("Packets of 64 bytes", "Mpps", [result.packets for result in results], sprayed),
            _panel(
                "TCP, at most", "Gbit/s of payload", [result.tcp for result in results], over_tcp
            ),
            _panel("Fairness", "Jain's index", [result.jain for result in results], 1.0),
        ),
        ours="the model, which only distributes flows over cores. It lacks reordered packets, "
        "congestion control, latency (Figure 3.8), the limit of the network card (10 Mpps, Figure "
        "3.6), and all cycles but the 10,000. So it does not show that hashed TCP is a little "
        "faster with many flows. Sprayed packets are even over cores at every instant, so their "
        "index is 1. Jain's index is of the packets that cores process; if the link is full, a "
        "fair TCP would be more even. Bands hold 90 % of the outcomes of hashing. The thesis has "
        "one deviation (3.7), or the least and the most of its runs (3.9)",
    )


def _panel(title: str, up: str, hashing: Sequence[Spread], spraying: float) -> Panel:
    return Panel(
        title,
        "flows",
        up,
        (
            Line.banded(
                "hashed (RSS)",
                FLOWS,
                (
                    (distribution.mean, distribution.low, distribution.high)
                    for distribution in hashing
                ),
            ),
            Line("sprayed", FLOWS, (spraying,) * len(FLOWS)),
        ),
        logarithmic=True,
    )
