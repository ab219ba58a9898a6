"""Which software works on which device: rules and facts in, combinations or conflicts out."""

from paceline.stack.devices import newest_stack, usable_precisions, why_unsupported

__all__ = ["newest_stack", "usable_precisions", "why_unsupported"]
