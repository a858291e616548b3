"""A throw-away Slurm on this machine, made from the installed Debian packages."""
