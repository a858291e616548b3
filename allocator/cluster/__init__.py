"""State and allocation of one Mesos cluster: a deterministic state machine.

"Mesos semantics" and a section mark such as §3.7 refer to docs/explanation/mesos-semantics.md.
"""
