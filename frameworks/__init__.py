"""Test frameworks, their experiments, and an embedded Mesos to run them on."""
