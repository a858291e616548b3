"""I/O around the engine: gRPC sessions, configuration, store, accounting, event log, metrics."""
