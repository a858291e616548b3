"""Frameworks: subscriptions, clients (frameworks in a role), and the demands of tasks."""
