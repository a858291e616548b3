"""What must hold, checked by code of its own: none of it comes from what it checks."""
