"""Masters that are connected: their streams, and which of them is served."""
