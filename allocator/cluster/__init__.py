"""State and allocation of one Mesos cluster: a deterministic state machine.

A mark in this package, for example "(§3.7)", names a section of docs/mesos-semantics.md.
"""
