"""How far answers of the same question may be apart."""

#: Relative. Slowdowns come of 32-bit matrix products, whose last bits follow the number of rows
#: that are multiplied together: what is asked alone and beside others may differ by so much
#: (docs/explanation/predicting.md). The same call gives the same bits.
ASKED_TOGETHER = 1e-6
