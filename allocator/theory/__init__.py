"""What can be said about policies: optima, properties, and what a liar gains."""
