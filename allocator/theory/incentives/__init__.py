"""Gains from misreporting demands when shares are evened out over time (dynamic DRF)."""
