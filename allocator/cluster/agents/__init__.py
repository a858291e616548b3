"""Agents: resources, placement, maintenance, failover recovery, and the ledger of allocations."""
