"""Test frameworks, experiments with them, and an embedded Mesos on which experiments can run."""
