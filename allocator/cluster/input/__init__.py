"""Input validation: limits, resource parsing, text checks, and the quarantine of invalid input."""
