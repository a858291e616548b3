"""Converters from other trace formats, one module per format."""
