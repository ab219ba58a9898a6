"""What the words of a device's name mean."""
