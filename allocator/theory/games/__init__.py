"""Games over time: users whose demands change share the same resources again and again."""
