"""Tools for sharing the event loop: no work may occupy the loop for long."""
