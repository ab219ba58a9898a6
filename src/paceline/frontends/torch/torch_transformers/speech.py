"""Recognisers of transformers whose answer grows with the sound and with its text: transducers.

Standard library, torch and transformers only. Graves 2012 (arXiv:1211.3711); token-and-duration
transducers: Xu et al. 2023 (arXiv:2304.06795).
"""

import importlib

from torch_transformers.families import HfSubject, tokens

#: Tokens of ten seconds of speech.
_NUM_TOKENS = 40


def transducer(model, kind, image_size):
    """The subject of a transducer; None of any other model."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    tables = (getattr(auto, "MODEL_FOR_%s_MAPPING_NAMES" % task, {}) for task in ("RNNT", "TDT"))
    if not any(type(model).__name__ in table.values() for table in tables):
        return None
    return _Transducer(model, "features", image_size)


class _Transducer(HfSubject):
    """Every frame meets every token in training; its loss sums over paths, which needs values."""

    def inputs(self, batch, _seq):
        """Sound, and the tokens before each that is asked for: in inference one step is counted."""
        count = _NUM_TOKENS if self.model.training else 1
        self.taken = (
            "%d tokens of text, a loss of every frame and token, not of paths" % count
            if self.model.training
            else "one step of its decoder"
        )
        given = super().inputs(batch, 1)
        given.pop("labels", None)
        return {**given, "decoder_input_ids": tokens(batch, count)}
