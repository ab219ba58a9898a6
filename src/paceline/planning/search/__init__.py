"""Which candidates there are, what each would take and cost, and which of them are kept."""
