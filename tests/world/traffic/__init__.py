"""Users of the cluster: frameworks of all characters, and operators."""
