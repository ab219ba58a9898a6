"""Scripts that run with torch alone, one process each, and print JSON lines."""
