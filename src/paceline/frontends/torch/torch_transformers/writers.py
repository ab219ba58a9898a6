"""Encoder-decoders of transformers as they answer: the input encoded once, then token by token.

Standard library, torch and transformers only. Decoders look back on what they wrote and on the
encoded input, whose keys and values are kept from the first token on. Where the input is a text,
the length of a decode pass is that of the encoded text: all that a token looks back on then stands
for both, since a layer keeps as much of a token of either. Where it is sound or a picture, it has
one length, and the length of the pass is that of the text written so far.
"""

from torch_transformers.families import cached, tokens


def passes(subject):
    """(name, repeats, where it runs, function of recorder and inputs): encoding, and one token."""
    encode = lambda _recorder, inputs: subject.call(_started(inputs))  # noqa: E731
    write = lambda recorder, inputs: _write(subject, recorder, inputs)  # noqa: E731
    return [("encode", 1.0, "device", encode), ("decode", 1.0, "device", write)]


def _started(inputs):
    """The inputs with the first token of an answer alone."""
    first = inputs["decoder_input_ids"][:, :1]
    return {**inputs, "decoder_input_ids": first, "use_cache": True}


def _write(subject, recorder, inputs):
    """One more token behind those that stand in the caches."""
    with recorder.paused():
        is_text = subject.shape is None
        filled = subject.call(_started(inputs) if is_text else {**inputs, "use_cache": True})
        cache = getattr(filled, subject.cache)
        for tensor in cached(cache):
            recorder.own(tensor, "kv_cache")
        main = inputs[subject.main_input]
        encoded = subject.model.get_encoder()(main)
        for tensor in cached(encoded):
            recorder.own(tensor, "input")
        given = {
            "encoder_outputs": encoded,
            "decoder_input_ids": tokens(main.shape[0], 1),
            subject.cache: cache,
            "use_cache": True,
        }
    subject.call(given)
