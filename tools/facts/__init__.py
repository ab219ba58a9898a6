"""What writes the data files that the package ships, each from its source."""
