"""Filters and constraints that prevent offers, and conversions of offered resources."""
