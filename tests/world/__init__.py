"""A small deterministic world in which the real service lives among virtual masters and tenants."""
