"""Score serving predictions on published runs; nothing is fitted to them."""
