"""The users of a cluster, whatever scheduler runs it: their tree, weights, memory, and orders.

Siblings in the tree are ranked by the allocation and the commitments of their subtrees. A user with
both clients of its own and sub-users competes with its sub-users through a *virtual leaf*, named
`USER/.`.
"""
