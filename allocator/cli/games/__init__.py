"""`longshare games`: searches for what users gain by lying in repeated sharing games."""
