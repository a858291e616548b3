"""`python -m allocator.cli` is `longshare`."""

from allocator.cli import app

app(prog_name="longshare")
