"""Every feature of the field and every requirement of ours, each tried by one command."""
