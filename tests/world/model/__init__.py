"""The true state of the world: agents and their tasks, masters and their state, elections."""
