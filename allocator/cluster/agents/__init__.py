"""Agents: resources, placement, maintenance, failover recovery, and the allocation ledger."""
