"""Decoding: the same pixels as Pillow's, upright, within limits."""

from __future__ import annotations

import io
import random
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps
from tests.unit.loop import samples

from paceline.loop import decode as decoding
from paceline.loop.decode import DamagedSample, Limits, Recipe, crop_box, decode

_CENTRE = Recipe(24, 0.875, False, False)


def _decoded(data: bytes, recipe: Recipe = _CENTRE, limits: Limits = decoding.LIMITS) -> np.ndarray:
    out = np.zeros((recipe.size, recipe.size, 3), np.uint8)
    decode(data, recipe, out, random.Random(1), limits)
    return out


def _by_pillow(data: bytes, recipe: Recipe = _CENTRE) -> np.ndarray:
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    top, left, height, width = crop_box(image.height, image.width, recipe)
    part = image.crop((left, top, left + width, top + height))
    return np.asarray(part.resize((recipe.size, recipe.size), Image.Resampling.BILINEAR))


def _difference(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.abs(first.astype(int) - second).mean())


@pytest.mark.parametrize(
    ("kind", "options"),
    [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {}), ("WEBP", {}), ("BMP", {})],
)
def test_pixels_are_those_of_pillow(kind: str, options: dict[str, object]) -> None:
    data = samples.encoded(kind, **options)
    assert _difference(_decoded(data), _by_pillow(data)) < 0.1


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_images_stand_upright(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = samples.encoded(kind, exif=exif)
    assert _difference(_decoded(data), _by_pillow(data)) < 0.1


@pytest.mark.parametrize("mode", ["L", "CMYK", "P", "RGBA", "1"])
def test_every_mode_becomes_colours(mode: str) -> None:
    buffer = io.BytesIO()
    kind = "JPEG" if mode in ("L", "CMYK") else "PNG"
    Image.fromarray(samples.pixels()).convert(mode).save(buffer, kind)
    data = buffer.getvalue()
    # A grey or four-colour JPEG may be turned into RGB by other tables than Pillow's.
    assert _difference(_decoded(data), _by_pillow(data)) < 1.0


def test_scaled_decoding_differs_by_little_and_only_where_it_has_the_pixels() -> None:
    big = io.BytesIO()
    Image.fromarray(samples.pixels()).resize((400, 300)).save(big, "JPEG", quality=95)
    whole, scaled = (_decoded(big.getvalue(), Recipe(24, 1.0, False, on)) for on in (False, True))
    assert 0 < _difference(whole, scaled) < 6
    small = samples.encoded()
    assert (_decoded(small) == _decoded(small, _CENTRE._replace(is_scaled=True))).all()


def test_random_crops_follow_the_draw_alone() -> None:
    data, recipe = samples.encoded(), Recipe(16, 1.0, True, False)
    first, again, other = (np.zeros((16, 16, 3), np.uint8) for _ in range(3))
    for out, seed in ((first, 3), (again, 3), (other, 4)):
        decode(data, recipe, out, random.Random(seed))
    assert (first == again).all()
    assert (first != other).any()


def test_random_crops_lie_inside() -> None:
    recipe, draw = Recipe(16, 1.0, True, False), random.Random(0)
    for height, width in ((1, 1), (1, 900), (900, 1), (40, 48)):
        for _ in range(200):
            top, left, high, wide = crop_box(height, width, recipe, draw)
            assert 0 <= top <= top + high <= height
            assert 0 <= left <= left + wide <= width
            assert high >= 1
            assert wide >= 1


def test_a_cut_off_jpeg_is_damaged_and_junk_before_a_marker_is_not() -> None:
    data = samples.encoded()
    with pytest.raises(DamagedSample, match=r"(?i)premature|truncated|corrupt"):
        _decoded(data[: len(data) // 2])
    scan = data.index(b"\xff\xda")
    with pytest.raises(DamagedSample):
        _decoded(data[:scan])


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"\xff\xd8", b"GIF89a", b"\x80\x04K\x01.", b"\0" * 99]
)
def test_what_is_no_image_is_damaged(data: bytes) -> None:
    with pytest.raises(DamagedSample):
        _decoded(data)


def _png_that_claims(side: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(10_000_000), 9)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )


def test_bombs_are_refused_by_their_header() -> None:
    jpeg = bytearray(samples.encoded())
    frame = jpeg.index(b"\xff\xc0")
    jpeg[frame + 5 : frame + 9] = b"\xff\xff\xff\xff"
    for bomb in (bytes(jpeg), _png_that_claims(9_000)):
        with pytest.raises(DamagedSample, match="over the limit"):
            _decoded(bomb)


def test_limits_hold_for_bytes_and_scans() -> None:
    data = samples.encoded(progressive=True)
    with pytest.raises(DamagedSample, match="over the limit of 100"):
        _decoded(data, limits=decoding.LIMITS._replace(sample_bytes=100))
    with pytest.raises(DamagedSample, match="over 2 scans"):
        _decoded(data, limits=decoding.LIMITS._replace(scans=2))
    assert _decoded(data).any()
