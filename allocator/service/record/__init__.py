"""Event log of the engine: writing, replay, reconstructed tasks, estimates for another policy."""
