"""What a campus adds to paceline."""
