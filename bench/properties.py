"""Table I of the TSF paper, checked: every tick tried with many random cases."""

import argparse
import time

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from allocator.theory.divisible.optimum import create
from allocator.theory.properties.search import PROPERTIES, search

POLICIES = ("per-machine-drf", "drfh", "cdrf", "tsf", "stsf", "sdrf")
TRIALS = 300


def main() -> None:
    """Print a table of cases tried; for violations, how large the smallest found is."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--trials", type=int, default=TRIALS, help="cases for each property")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("policies", nargs="*", default=POLICIES)
    asked = options.parse_args()
    table = Table(title="Cases that no violation was found in, or users × machines of the smallest")
    table.add_column("policy")
    for wanted in PROPERTIES:
        initials = "".join(word[0] for word in wanted.name.split("-"))
        table.add_column(initials.upper(), justify="right")
    table.add_column("ms a case", justify="right")
    with Progress(transient=True) as progress:
        task = progress.add_task("Searching", total=len(asked.policies) * len(PROPERTIES))
        for policy in asked.policies:
            cells, tried, begun = [], 0, time.process_time()
            for wanted in PROPERTIES:
                outcome = search(create(policy, {}), wanted, trials=asked.trials, seed=asked.seed)
                tried += outcome.tried
                violation = outcome.violation
                if violation is None:
                    cells.append(f"{outcome.tried - outcome.undecided:,}")
                else:
                    problem = violation.problem
                    where = "" if violation.certain else " *"
                    cells.append(f"{len(problem.users)} × {len(problem.machines)}{where}")
                progress.advance(task)
            spent = time.process_time() - begun
            table.add_row(policy, *cells, f"{1000 * spent / tried:.1f}")
    Console().print(table)
    Console().print("*: in some placements of the tasks only. Columns are in the order of Table I.")


if __name__ == "__main__":
    main()
