"""Input validation: limits, resource parsing, text, and the quarantine of invalid input."""
