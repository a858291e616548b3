"""Input: readers of untrusted messages, their limits, and the quarantine of rejected parts."""
