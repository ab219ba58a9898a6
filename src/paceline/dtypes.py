"""Number formats by name, and the precisions a job can run in.

A *dtype* is how a tensor is stored. A *precision* is how a job is run: what its matrix products
are computed in, how its activations and weights are stored, and which peak rate applies.
"""

from __future__ import annotations

from enum import IntEnum

from paceline.errors import UnknownNameError
from paceline.values import dataclass


class DType(IntEnum):
    """Storage formats. The numbers are written in workload files: never renumber."""

    FP32 = 0
    FP64 = 1
    FP16 = 2
    BF16 = 3
    FP8 = 4
    INT64 = 5
    INT32 = 6
    INT8 = 7
    UINT8 = 8
    BOOL = 9
    INT4 = 10
    INT16 = 11
    COMPLEX64 = 12
    FP4 = 13


#: Bytes of one element, indexed by ``DType``. Sub-byte formats are fractions.
ELEMENT_BYTES: tuple[float, ...] = (4, 8, 2, 2, 1, 8, 4, 1, 1, 1, 0.5, 2, 8, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """How a job's numbers are kept and multiplied.

    Attributes:
        name: As users type it.
        peak_key: Key of the device's dense matrix peak that applies (``Device.peak_flop_per_s``).
        fallback_peak_keys: Peaks that apply instead, in order, where a device has no such unit
            and the framework still runs the job (emulation or a wider format).
        matmul_dtype: Format of matrix-product operands.
        activation_dtype: Format in which activations are kept.
        weight_dtype: Format in which weights are kept for the forward pass.
        is_trainable: Whether training may use it.
    """

    name: str
    peak_key: str
    fallback_peak_keys: tuple[str, ...]
    matmul_dtype: DType
    activation_dtype: DType
    weight_dtype: DType
    is_trainable: bool


def _precision(
    name: str,
    peak_key: str,
    fallback: tuple[str, ...],
    formats: tuple[DType, DType, DType],
    *,
    trainable: bool = True,
) -> Precision:
    matmul, activation, weight = formats
    return Precision(
        name=name,
        peak_key=peak_key,
        fallback_peak_keys=fallback,
        matmul_dtype=matmul,
        activation_dtype=activation,
        weight_dtype=weight,
        is_trainable=trainable,
    )


_F32, _F16, _B16 = DType.FP32, DType.FP16, DType.BF16

#: Every precision, by name. ``fp16``/``bf16`` mean autocast in training and half weights in
#: inference; ``int8``/``int4`` are weight-only with BF16 arithmetic, as is ``mxfp4``, in which
#: mixtures keep the weights of their experts alone; ``int8-full`` multiplies INT8. ``nvfp4`` (MXFP4
#: on AMD's devices) multiplies FP4 where units have it, else widens its weights; in training, where
#: units have it alone.
PRECISIONS: dict[str, Precision] = {
    p.name: p
    for p in (
        _precision("fp32", "fp32", (), (_F32, _F32, _F32)),
        _precision("tf32", "tf32", ("fp32",), (_F32, _F32, _F32)),
        _precision("fp16", "fp16", ("fp32",), (_F16, _F16, _F16)),
        _precision("bf16", "bf16", ("fp32",), (_B16, _B16, _B16)),
        _precision("fp8", "fp8", (), (DType.FP8, _B16, DType.FP8)),
        _precision("nvfp4", "fp4", ("bf16", "fp16"), (DType.FP4, _B16, DType.FP4)),
        _precision("int8-full", "int8", (), (DType.INT8, _B16, DType.INT8), trainable=False),
        _precision("int8", "bf16", ("fp16", "fp32"), (_B16, _B16, DType.INT8), trainable=False),
        _precision("int4", "bf16", ("fp16", "fp32"), (_B16, _B16, DType.INT4), trainable=False),
        _precision("mxfp4", "bf16", ("fp16", "fp32"), (_B16, _B16, DType.FP4), trainable=False),
    )
}

#: What else people call them; integers of four bits in groups are one format to us.
_SPELLINGS = {
    "float32": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float8": "fp8",
    "fp4": "nvfp4",
    **dict.fromkeys(
        ("nf4", "awq", "gptq", "w4a16", "q4_0", "q4_k_m", "4bit", "4-bit", "bnb-4bit"),
        "int4",
    ),
    **dict.fromkeys(("w8a16", "q8_0", "8bit", "8-bit", "bnb-8bit"), "int8"),
    "w8a8": "int8-full",
}


def find_precision(name: str) -> Precision:
    """The precision called ``name``.

    Raises:
        UnknownNameError: No such precision.

    >>> find_precision("bf16").activation_dtype.name
    'BF16'
    """
    try:
        return PRECISIONS[name.lower()]
    except KeyError:
        raise UnknownNameError.from_name(
            "precision", name, PRECISIONS, command="paceline predict --help"
        ) from None


def read_precision(text: str) -> str:
    """Name of the precision that somebody types, as we or others spell it.

    Raises:
        UnknownNameError: No such precision.

    >>> read_precision("bfloat16"), read_precision("Q4_K_M")
    ('bf16', 'int4')
    """
    return find_precision(usual_spelling(text)).name


def usual_spelling(text: str) -> str:
    """What we call a format that others call otherwise; the text itself of all else.

    >>> usual_spelling("NF4"), usual_spelling("full")
    ('int4', 'full')
    """
    return _SPELLINGS.get(text.lower(), text)


def is_trainable(text: str) -> bool:
    """Whether anything is trained in a precision; also of what names none.

    >>> is_trainable("bf16"), is_trainable("AWQ")
    (True, False)
    """
    known = PRECISIONS.get(usual_spelling(text))
    return known is None or known.is_trainable


def first_as_wide(precision: Precision) -> Precision:
    """The first precision whose numbers are all as wide: a program's bytes tell none apart.

    >>> first_as_wide(find_precision("bf16")).name, first_as_wide(find_precision("tf32")).name
    ('fp16', 'fp32')
    """
    return next(one for one in PRECISIONS.values() if _widths(one) == _widths(precision))


def _widths(precision: Precision) -> tuple[float, ...]:
    """Bytes of its formats; those below a byte differ in their scales, so by their number."""
    formats = precision.matmul_dtype, precision.activation_dtype, precision.weight_dtype
    scales = precision.weight_dtype if ELEMENT_BYTES[precision.weight_dtype] < 1 else -1
    return (*(ELEMENT_BYTES[dtype] for dtype in formats), scales, precision.is_trainable)
