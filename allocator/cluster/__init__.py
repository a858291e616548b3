"""State and allocation of one Mesos cluster: a deterministic state machine.

A mark such as §3.7 names a section of docs/mesos-semantics.md.
"""
