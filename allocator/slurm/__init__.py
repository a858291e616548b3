"""The adapter for Slurm: follows a cluster, and orders its pending jobs."""
