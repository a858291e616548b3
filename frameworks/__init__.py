"""Test frameworks, their experiments, and an embedded Mesos that can run them."""
