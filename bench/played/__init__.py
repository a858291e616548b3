"""What benchmarks through the wire share: a master that is played, and what it is connected to."""
