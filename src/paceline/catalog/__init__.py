"""What exists: devices, links, offers and machines, each fact with its source and date."""
