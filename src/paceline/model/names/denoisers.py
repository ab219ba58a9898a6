"""Denoisers by name: what numbers a family of diffusion has, and how many patches an item is.

Rows of ``model/data/denoisers.csv``, each with its source. A trainer takes one denoising step of an
item whose latents and text were made before, so that a family is a ``denoiser:`` entry and a length
in latent patches, which its pictures or films have.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache
from typing import Literal, cast

from paceline.model.names.spelling import of_one_size, without_owner
from paceline.patterns import pattern
from paceline.shipped import shipped_rows
from paceline.values import dataclass

_SIZES = (
    "double", "single", "parallel", "cross", "hidden", "heads", "kv_heads", "head_size", "ffn",
    "gated", "bias", "words", "text", "channels", "modulation", "norm", "rotary",
)  # fmt: skip

Checkpoints = Literal["segments", "alternate", "blocks", "nothing"]

#: What tells no two families apart.
_SEPARATORS = pattern(r"[^a-z0-9]+|diffusers$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Denoiser:
    """A family of diffusion models.

    Attributes:
        entry: As every verb takes it, with as many patches as a usual item has.
        patch_pixels: Side of what one patch stands for.
        frames_per_latent: Frames that one latent frame stands for, after the first; 0 of pictures.
        usual: Width, height and frames of an item where nothing is stated.
        checkpoints: What a trainer that is asked for segments recomputes: those (``segments``),
            one of every so many blocks (``alternate``), each block (``blocks``) or ``nothing``.
    """

    entry: str
    patch_pixels: int
    frames_per_latent: int
    usual: tuple[int, int, int]
    checkpoints: Checkpoints = "segments"

    def num_patches(self, width: int = 0, height: int = 0, frames: int = 0) -> int:
        """Patches of an item; what is zero is as usual.

        >>> denoiser_of("PixArt-Sigma").num_patches(512, 512)
        1024
        >>> denoiser_of("Wan 2.1 T2V 1.3B").num_patches(832, 480, 81)
        32760
        """
        width, height = width or self.usual[0], height or self.usual[1]
        frames = frames or self.usual[2]
        latents = 1
        if self.frames_per_latent:
            latents = 1 + math.ceil((frames - 1) / self.frames_per_latent)
        return (
            latents * math.ceil(width / self.patch_pixels) * math.ceil(height / self.patch_pixels)
        )


def denoiser_of(name: str) -> Denoiser | None:
    """The family of a name, however it is spelled; None where it is no known one.

    >>> denoiser_of("black-forest-labs/FLUX.1-dev").entry[:29]
    'denoiser:double=19,parallel=3'
    >>> denoiser_of("resnet50") is None
    True
    """
    key = _SEPARATORS.sub("", without_owner(name).lower())
    return next((found for pattern, found in _families() if pattern.fullmatch(key)), None)


@cache
def _families() -> tuple[tuple[re.Pattern[str], Denoiser], ...]:
    return tuple(
        (of_one_size(row["name"]), _family(row)) for row in shipped_rows("model", "denoisers.csv")
    )


def _family(row: dict[str, str]) -> Denoiser:
    sizes = ",".join(f"{name}={row[name]}" for name in _SIZES if row[name])
    width, height, frames = (int(row[name]) for name in ("width", "height", "frames"))
    family = Denoiser(
        entry=f"denoiser:{sizes}",
        patch_pixels=int(row["patch_pixels"]),
        frames_per_latent=int(row["frames_per_latent"] or 0),
        usual=(width, height, frames),
        checkpoints=cast("Checkpoints", row["checkpoints"] or "segments"),
    )
    return replace(family, entry=f"{family.entry},patches={family.num_patches()}")
