"""What a terminal shows: each answer as text."""
