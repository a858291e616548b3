"""Foreign forms of traces, each read by a module of its own."""
