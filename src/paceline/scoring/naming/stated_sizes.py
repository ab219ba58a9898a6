"""A language model whose sizes a row states, as an entry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

from paceline.scoring.tables import read_table
from paceline.values import dataclass

#: Names of models that are more than one stack of dense blocks, whatever sizes a row states.
_OTHERS = re.compile(
    r"\b(llava|multimodal|mimo|vlm|vl|hybrid|mamba|rwkv|nemotron)\b|_vlm_", re.IGNORECASE
)
#: Encoder-decoders, whose stated layers are those of either.
_DOUBLE_ENTRY = "hf:t5,"
_DOUBLE = re.compile(r"\b(flan-?)?m?t5\b", re.IGNORECASE)
#: Plain feed-forward layers are four times as wide as the model, gated ones 8/3 times.
_GATED_BELOW = 3.5
#: Sizes that make another number of parameters than is stated are not those of the model.
_TOLERATED_FRAC = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Sizes of a decoder or an encoder."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    gated: int = 0
    tied: int = 0
    dropout: float = 0.0
    experts: int = 0
    top_k: int = 0

    def num_parameters(self) -> float:
        """Without biases, norms and routers."""
        attention = 2 * self.hidden**2 * (1 + self.kv_heads / self.heads)
        block = attention + max(self.experts, 1) * (2 + self.gated) * self.hidden * self.ffn
        return self.layers * block + (2 - self.tied) * self.vocab * self.hidden

    def double_entry(self) -> str:
        """An encoder and a decoder of these sizes, as every verb takes it."""
        return (
            f"{_DOUBLE_ENTRY}d_model={self.hidden},num_layers={self.layers},"
            f"num_decoder_layers={self.layers},num_heads={self.heads},"
            f"d_kv={self.hidden // self.heads},d_ff={self.ffn},vocab_size={self.vocab}"
        )

    def entry(self) -> str:
        """As every verb takes it."""
        kind = "norm=rms,bias=0" if self.gated else "norm=layer,bias=1"
        return (
            f"transformer:layers={self.layers},hidden={self.hidden},heads={self.heads},"
            f"kv_heads={self.kv_heads},ffn={self.ffn},vocab={self.vocab},gated={self.gated},{kind},"
            f"tied={self.tied}"
            + (f",dropout={self.dropout:g}" if self.dropout else "")
            + (f",experts={self.experts},top_k={self.top_k}" if self.experts else "")
        )


def stated_sizes(
    remarks: Mapping[str, str], row: Mapping[str, str], *, dropout: float = 0.0
) -> str:
    """The entry of a language model whose sizes a row states; empty if it does not.

    Whether the feed-forward layer is gated and the embedding tied is what comes nearest to the
    stated number of parameters; without one, a ratio of widths below 3.5 is that of gated layers.

    Args:
        remarks: By key: hidden, layers, heads and the like.
        row: Cells by column.
        dropout: What the trainer drops where nobody says.

    >>> sizes = {"hidden": "4096", "layers": "32", "heads": "32", "ffn": "11008", "vocab": "32000"}
    >>> stated_sizes(sizes, {"params_m": "6738"})[-30:]
    'gated=1,norm=rms,bias=0,tied=0'
    >>> stated_sizes(sizes, {"params_m": "9657"}), stated_sizes(sizes, {"model": "vlm test"})
    ('', '')
    >>> stated_sizes(sizes | {"experts": "8", "moe_ffn": "1024"}, {})[-17:]
    'experts=8,top_k=2'
    """
    plain = _plain(remarks, row, dropout)
    if plain is None or _OTHERS.search(row.get("model", "")):
        return ""
    if _DOUBLE.search(row.get("model", "")):
        return plain.double_entry()
    stated = float(row.get("params_m") or 0.0) * 1e6
    gates = (1,) if remarks.get("swiglu") == "yes" else (0, 1)
    ties = _TIES.get(remarks.get("tied", "").lower(), (0, 1))
    choices = [replace(plain, gated=g, tied=t) for g, t in product(gates, ties)]
    if not stated:
        gated = gates[-1] if plain.ffn < _GATED_BELOW * plain.hidden else gates[0]
        return replace(plain, gated=gated, tied=ties[0]).entry()
    nearest = min(choices, key=lambda one: abs(one.num_parameters() / stated - 1.0))
    is_it = abs(nearest.num_parameters() / stated - 1.0) < _TOLERATED_FRAC
    return nearest.entry() if is_it else ""


def is_double(entry: str) -> bool:
    """Whether what `stated_sizes` gives is an encoder and a decoder."""
    return entry.startswith(_DOUBLE_ENTRY)


#: Width of a head where none is stated.
_USUAL_HEAD = 128
#: Experts that a token takes where nobody says: Mixtral's and GShard's.
_USUAL_TOP_K = 2
_TIES = {"yes": (1,), "no": (0,)}


def _plain(remarks: Mapping[str, str], row: Mapping[str, str], dropout: float) -> _Sizes | None:
    hidden, layers, heads = (_whole(remarks.get(key, "")) for key in ("hidden", "layers", "heads"))
    heads = heads or hidden // _USUAL_HEAD
    vocab = _whole(remarks.get("vocab", "")) or _usual_vocabulary(row.get("model", ""))
    if not (hidden and layers and heads and vocab):
        return None
    kv_heads, ffn, experts, of_expert, top_k = (
        _whole(remarks.get(key, "")) for key in ("kv_heads", "ffn", "experts", "moe_ffn", "top_k")
    )
    ffn = (of_expert if experts else 0) or ffn or 4 * hidden
    return _Sizes(
        layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads or heads, ffn=ffn, vocab=vocab,
        dropout=dropout, experts=experts, top_k=(top_k or _USUAL_TOP_K) if experts else 0,
    )  # fmt: skip


def _whole(text: str) -> int:
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0


def _usual_vocabulary(model: str) -> int:
    """Entries of the tokenizer that a test model of a family has, padded; none if not known."""
    known = (k for k in read_table("usual_vocabularies.csv") if re.search(k["pattern"], model))
    return int(next(known, {"vocab": "0"})["vocab"])
