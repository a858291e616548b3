# %% [markdown]
# # Your own trace
#
# What your scheduler's log has of each task: who submitted it, when, for how long it ran, and
# what it needed. Here it is a CSV file; put yours in its place. `longshare trace convert` reads
# larger ones, and other formats.

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
print(len(trace), "tasks of", trace.users, "use on average", trace.mean_use())

# %% [markdown]
# A trace is a Parquet file on disk, for the commands as well: `longshare simulate mine.parquet
# --policy sdrf ...`.

# %%
from pathlib import Path

write_trace(trace, Path("mine.parquet"))
assert len(read_trace(Path("mine.parquet"))) == len(trace)

# %% [markdown]
# What if the cluster were smaller? Loads below 1 are more than it has room for.

# %%
for load in (2.0, 1.0, 0.8):
    done = simulate(trace, "sdrf", {"half_life": "10m"}, load=load, blocking="skip")
    row = {
        user: round(wait) for user, wait in zip(trace.users, done.users.mean_wait_s, strict=True)
    }
    print(f"at {load:g} of the mean use: {row}, never started: {done.summary['never_started']}")

# %% [markdown]
# Each task's row, for whatever else you compute with: Arrow tables go to pandas, Polars and
# DuckDB as they are.

# %%
table = done.tasks_table()
print(table.schema.names, table.num_rows)
assert table.num_rows == len(trace)
