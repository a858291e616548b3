"""Properties of sharing, and a search for cases in which a policy does not have them."""
