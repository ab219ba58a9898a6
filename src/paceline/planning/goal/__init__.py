"""What is wanted: constraints, an objective, an amount of work, and files that state them."""
