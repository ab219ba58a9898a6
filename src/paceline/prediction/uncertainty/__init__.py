"""How sure a prediction is, and what measured steps tell of those like them."""
