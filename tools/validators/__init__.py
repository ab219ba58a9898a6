"""Launch files, whole and broken, before the validators of their targets."""
