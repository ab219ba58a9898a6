"""Where a job could run: offers and own machines, with what they cost and what they lack."""
