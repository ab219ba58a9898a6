"""Op kinds, a file for each family: all that lowering, prediction and splitting know of a kind.

A new kind is a number in `kinds`, a `KindFacts` in the file of its family, and rows of data
(``kernels.csv``, ``variants.csv``, ``torch_ops.csv``). `registry` joins the families and gives
their facts as columns over kinds.
"""
