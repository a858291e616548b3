"""The service for Slurm: configuration, the loop that follows one Slurm, and metrics."""
