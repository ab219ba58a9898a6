"""What makes a script slow: what is tried in it, what that measured, and what would help."""
