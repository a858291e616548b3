"""The mathematics of fair sharing: it ranks users, without Mesos, I/O or a clock."""
