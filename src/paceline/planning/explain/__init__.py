"""Why a choice stands where it does, and what would change that."""
