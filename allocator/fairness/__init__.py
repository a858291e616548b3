"""Who is next: the mathematics of fair sharing, without Mesos, I/O or clock."""
