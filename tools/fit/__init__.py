"""The fit of the shipped coefficients, and of the constants that stand beside them."""
