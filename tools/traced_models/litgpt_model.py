"""LitGPT's fine-tuning at one length, with logits and cross-entropy in chunks of 128 tokens.

Source: Lightning-AI/litgpt, lit_gpt/utils.py (`chunked_cross_entropy`); the decoder is the one that
is shipped for rows of LitGPT.
"""

import json
import os

import torch
from litgpt import FineTuning
from torch.nn import functional

CHUNK_TOKENS = 128


class ChunkedFineTuning(FineTuning):
    """Fine-tuning on sequences of one length."""

    def __init__(self, spec):
        super().__init__(spec, spec["method"], CHUNK_TOKENS)
        self.length = spec["seq"]

    def inputs(self, batch):
        """Token numbers."""
        return super().inputs(batch, self.length)

    def loss(self, chunks, tokens):
        """Cross-entropy chunk by chunk."""
        chunks[-1] = chunks[-1][..., :-1, :]
        targets = tokens[..., 1:].split(CHUNK_TOKENS, dim=1)
        terms = [
            functional.cross_entropy(
                logits.reshape(-1, logits.shape[-1]), target.reshape(-1), reduction="none"
            )
            for logits, target in zip(chunks, targets, strict=True)
        ]
        return torch.cat(terms).sum() / 2.0


def build():
    """The job whose numbers stand in the environment as ``TRACED_MODEL``."""
    return ChunkedFineTuning(json.loads(os.environ["TRACED_MODEL"]))
