"""What a user asks, made into the values that the rooms below take."""
