"""Converters to traces from other workload and accounting formats, one module per format."""
