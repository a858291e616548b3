"""Figures of the papers that are computed here: their points, what is known of them, pictures."""
