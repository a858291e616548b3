"""Event log, replay, reconstructed history of tasks, and estimates for another policy."""
