# %% [markdown]
# # Your own trace
#
# A trace has the user, the submission, the runtime and the demand of each task. Here, the
# scheduler's log is a CSV file; replace it with your own. `longshare trace convert` reads large
# files, and other formats.

# %%
import csv
import io

from allocator.api import Task, make_trace, read_trace, simulate, write_trace

LOG = """submitted_s,runtime_s,user,cpus,mem_gb
0,300,reports,4,8
0,300,reports,4,8
5,300,reports,4,8
10,60,web,1,2
15,60,web,1,2
20,60,web,1,2
400,300,reports,4,8
410,60,web,1,2
"""

tasks = [
    Task(
        user=row["user"],
        submitted=float(row["submitted_s"]),
        runtime=float(row["runtime_s"]),
        demand={"cpus": float(row["cpus"]), "mem_gb": float(row["mem_gb"])},
    )
    for row in csv.DictReader(io.StringIO(LOG))
]
trace = make_trace(tasks)
amounts = zip(trace.resources, trace.mean_use(), strict=True)
mean_use = ", ".join(f"{amount:.2f} {name}" for name, amount in amounts)
print(f"{len(trace)} tasks of {', '.join(trace.users)} use on average {mean_use}")

# %% [markdown]
# A trace is a Parquet file on disk, for the commands as well: `longshare simulate mine.parquet
# --policy sdrf ...`.

# %%
from pathlib import Path

write_trace(trace, Path("mine.parquet"))
assert len(read_trace(Path("mine.parquet"))) == len(trace)

# %% [markdown]
# How long are waits on a smaller cluster? With a load below 1, the cluster is smaller than the
# mean use.

# %%
print("size / mean use   never started   mean wait")
for load in (2.0, 1.0, 0.8):
    done = simulate(trace, "sdrf", {"half_life": "10m"}, load=load, blocking="skip")
    waits = zip(trace.users, done.users.mean_wait_s, strict=True)
    row = ", ".join(f"{user} {wait:.0f} s" for user, wait in waits)
    print(f"{load:15g}   {done.summary['never_started']:13}   {row}")

# %% [markdown]
# The table has a row for each task. pandas, Polars and DuckDB read Arrow tables directly.

# %%
table = done.tasks_table()
print(f"{table.num_rows} rows with {', '.join(table.schema.names)}")
assert table.num_rows == len(trace)
