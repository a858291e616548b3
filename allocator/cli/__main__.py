"""Entry point: `python -m allocator.cli` is `longshare`."""

from allocator.cli import main

main()
