"""Who uses the cluster: frameworks of all characters, and operators."""
