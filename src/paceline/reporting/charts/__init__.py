"""Pictures of an answer, as data for Vega-Lite, and how they are drawn."""
