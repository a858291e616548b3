"""Makes `python -m allocator.cli` equivalent to the command `longshare`."""

from allocator.cli import main

main()
