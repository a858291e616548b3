"""What is true in the world: agents and their tasks, masters and their books, elections."""
