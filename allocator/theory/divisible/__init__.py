"""The ideal allocation of each policy, as if tasks were divisible into arbitrarily small parts."""

from allocator.theory.divisible.fluid import FluidTrajectory, FluidUser, fluid
from allocator.theory.divisible.water_filling import Optimum, drf, equation_10, mmf, sdrf, smmf

__all__ = [
    "FluidTrajectory",
    "FluidUser",
    "Optimum",
    "drf",
    "equation_10",
    "fluid",
    "mmf",
    "sdrf",
    "smmf",
]
