"""Which offers clients do not get, and how offer operations convert resources."""
