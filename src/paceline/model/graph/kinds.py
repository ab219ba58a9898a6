"""The canonical operations."""

from __future__ import annotations

from enum import IntEnum


class OpKind(IntEnum):
    """Canonical operations. The numbers are written in workload files: never renumber."""

    MATMUL = 0
    CONV = 1
    CONV_BACKWARD_INPUT = 2
    CONV_BACKWARD_WEIGHT = 3
    ATTENTION = 4
    ATTENTION_BACKWARD = 5
    RECURRENT = 6
    RECURRENT_BACKWARD = 7
    NORM = 8
    NORM_BACKWARD = 9
    SOFTMAX = 10
    SOFTMAX_BACKWARD = 11
    CROSS_ENTROPY = 12
    CROSS_ENTROPY_BACKWARD = 13
    EMBEDDING = 14
    EMBEDDING_BACKWARD = 15
    POOL = 16
    POOL_BACKWARD = 17
    INTERPOLATE = 18
    INTERPOLATE_BACKWARD = 19
    DROPOUT = 20
    DROPOUT_BACKWARD = 21
    ELEMENTWISE = 22
    REDUCE = 23
    COPY = 24
    INDEX = 25
    SORT = 26
    RANDOM = 27
    OPTIMIZER = 28
    CAST = 29
    DEQUANTIZE = 30
    MOE_DISPATCH = 31
    SCAN = 32
    OTHER = 33
    COLLECTIVE = 34
    FFT = 35
    LINALG = 36
    HOST_COPY = 37
    HOST_WAIT = 38
