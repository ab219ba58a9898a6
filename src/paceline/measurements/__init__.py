"""What was seen: flat, versioned records with the environment that made them."""
