"""I/O around the engine: gRPC session, configuration, recorder, metrics."""
