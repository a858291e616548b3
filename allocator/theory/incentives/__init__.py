"""What a user can gain by misreporting when shares are evened out over time."""
