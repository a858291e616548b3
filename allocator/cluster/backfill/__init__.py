"""Backfill holds: agents held for tasks that fit nowhere, so that large tasks do not starve."""
