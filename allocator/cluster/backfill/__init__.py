"""Backfill holds: agents kept free for large tasks, so that smaller tasks do not starve them."""
