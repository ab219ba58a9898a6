"""All that is fitted, as data, and what a user's own measurements add to it."""
