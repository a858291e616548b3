"""How users stand, shown: to Prometheus, to people in a page or a sentence, as a recording."""
