"""Films: animations of a cluster over time, each one HTML file that a browser plays offline."""
