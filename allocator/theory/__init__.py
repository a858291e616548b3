"""Analysis of policies: divisible optima, fairness properties, games, and gains from lies."""
