"""`longshare games`: what users can gain and lose in games over time."""
