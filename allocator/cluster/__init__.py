"""What the allocator knows and does: a deterministic state machine over Mesos's semantics."""
