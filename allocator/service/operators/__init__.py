"""What operators ask and order."""
