"""Repeated games: users with changing demands share the same resources stage after stage.

The package tests whether a policy is fair over time and whether lies pay.
"""
