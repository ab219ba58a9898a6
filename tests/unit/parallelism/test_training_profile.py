from __future__ import annotations

import numpy as np
import pytest

from paceline.errors import UnknownNameError
from paceline.parallelism.replicas.data_parallel import BUCKET_BYTES
from paceline.parallelism.training_profile import find_training_profile


def test_buckets_are_bytes_or_grow_with_the_ranks_that_shard() -> None:
    usual, megatron = find_training_profile(), find_training_profile("megatron")
    shards = np.array([8, 64])
    assert usual.bucket_size_bytes(shards, 4.0).tolist() == [BUCKET_BYTES] * 2
    assert megatron.bucket_size_bytes(shards, 4.0).tolist() == [160e6, 256e6]


def test_what_a_row_leaves_out_is_as_usual() -> None:
    usual, megatron = find_training_profile(), find_training_profile("megatron")
    assert megatron.overlaps_gradients == usual.overlaps_gradients
    assert usual.with_optimizer_of(megatron).cut == usual.cut == "cost"
    assert usual.with_optimizer_of(megatron).gathers_ahead


def test_unknown_frameworks_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="no training framework named `megatrons`") as caught:
        find_training_profile("megatrons")
    assert "megatron" in caught.value.hint
