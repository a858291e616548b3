"""Analysis of policies: ideal allocations, fairness properties, repeated games, gains from lies."""
