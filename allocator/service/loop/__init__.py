"""Tools for sharing the event loop, so that no work occupies the loop for long."""
