"""Agents held back for users whose tasks fit nowhere, so that small tasks starve no big one."""
