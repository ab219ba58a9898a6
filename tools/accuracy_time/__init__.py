"""Time of training and inference by source, each judged by the widths of the others."""
