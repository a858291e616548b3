"""Operators' requests: questions and orders."""
