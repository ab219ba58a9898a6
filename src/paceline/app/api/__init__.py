"""The public functions, by what a person wants of them."""
