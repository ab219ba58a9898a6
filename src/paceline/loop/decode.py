"""Bytes of an image to a square of pixels, without the GIL and within limits.

Baseline and progressive JPEG go through simplejpeg (libjpeg-turbo); what it does not read, and
every other format, through Pillow. The header is read first, so that a file that claims a
billion pixels costs nothing. Crop and shrink are PyTorch's antialiased resize of bytes.
"""

import io
import math
import struct
import threading
from collections import namedtuple

import numpy as np

#: Most a sample may ask for: ``pixels`` of an image, ``sample_bytes`` of a sample as stored,
#: ``scans`` of a progressive JPEG (each costs a pass over the image).
Limits = namedtuple("Limits", ["pixels", "sample_bytes", "scans"])
LIMITS = Limits(2**26, 2**28, 500)

#: What is sent of an image: ``size`` pixels of a side, cut from the middle (``crop_frac`` of the
#: shorter side) or, ``is_random``, from a random place with a random flip. ``is_scaled`` decodes a
#: JPEG at a lower resolution where that has enough pixels: faster, and not the same bytes.
Recipe = namedtuple("Recipe", ["size", "crop_frac", "is_random", "is_scaled"])

_PILLOW_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "PPM")
#: Start-of-frame markers; 0xC4, 0xC8 and 0xCC are something else.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = frozenset((0xC2, 0xC6, 0xCA, 0xCE))
#: What libjpeg says of pixels that are lost; other remarks of it are harmless.
_LOST = ("premature end", "bad huffman", "corrupt", "truncated", "bogus", "invalid")
_HARMLESS = ("extraneous bytes",)
_ORIENTATION_TAG = 0x0112
#: Share of the area and side ratios of a random crop (Szegedy et al., CVPR 2015, section 6).
_AREA, _RATIO, _TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10

JpegHeader = namedtuple(
    "JpegHeader", ["width", "height", "components", "is_progressive", "orientation"]
)

_own = threading.local()


class DamagedSample(Exception):
    """A sample that cannot be read; ``str()`` says why."""


def decode(data, recipe, out, draw=None, limits=LIMITS):
    """Decode, crop and shrink one image into ``out``.

    Args:
        data: The file, as bytes or what has the buffer protocol.
        recipe: Of type ``Recipe``.
        out: uint8 array of ``[size, size, 3]`` that is written.
        draw: ``random.Random`` of this sample; for a random recipe.
        limits: Of type ``Limits``.

    Raises:
        DamagedSample: Not an image, damaged, or beyond the limits.
    """
    pixels, orientation = pixels_of(data, recipe, limits)
    if orientation > 1:
        pixels = _turned(pixels, orientation)
    top, left, height, width = crop_box(pixels.shape[0], pixels.shape[1], recipe, draw)
    shrink(pixels[top : top + height, left : left + width], out)
    if recipe.is_random and draw.random() < 0.5:
        out[:] = out[:, ::-1].copy()


def pixels_of(data, recipe=None, limits=LIMITS):
    """Pixels as stored, ``[height, width, 3]`` uint8, and the EXIF orientation still to apply.

    The array may be a buffer of this thread: it is good until the thread's next call.
    """
    if len(data) > limits.sample_bytes:
        raise DamagedSample("%d bytes, over the limit of %d" % (len(data), limits.sample_bytes))
    if bytes(data[:2]) != b"\xff\xd8":
        return _by_pillow(data, limits), 1
    header = jpeg_header(data)
    _check_size(header.width, header.height, limits)
    if header.is_progressive and bytes(data).count(b"\xff\xda") > limits.scans:
        raise DamagedSample("a progressive JPEG of over %d scans" % limits.scans)
    if header.components not in (1, 3):
        return _by_pillow(data, limits), 1
    return _by_simplejpeg(data, header, recipe, limits)


def crop_box(height, width, recipe, draw=None):
    """Part of an image that is sent: ``(top, left, height, width)``."""
    if not recipe.is_random:
        side = max(1, round(min(height, width) * recipe.crop_frac))
        return (height - side) // 2, (width - side) // 2, side, side
    for _ in range(_TRIES):
        area = height * width * draw.uniform(*_AREA)
        ratio = math.exp(draw.uniform(math.log(_RATIO[0]), math.log(_RATIO[1])))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            return draw.randint(0, height - high), draw.randint(0, width - wide), high, wide
    side = min(height, width)
    return (height - side) // 2, (width - side) // 2, side, side


def shrink(pixels, out):
    """Antialiased bilinear resize of uint8 pixels ``[h, w, 3]`` into ``out`` ``[H, W, 3]``."""
    import torch

    if pixels.shape == out.shape:
        out[:] = pixels
        return
    resize = torch.ops.aten._upsample_bilinear2d_aa.out
    # One image as [1, 3, h, w] with the channels innermost, which PyTorch resizes as bytes.
    with torch.no_grad():
        source = torch.from_numpy(_packed(pixels)).permute(2, 0, 1)[None]
        target = torch.from_numpy(out).permute(2, 0, 1)[None]
        resize(source, list(out.shape[:2]), False, None, None, out=target)


def jpeg_header(data):
    """Size, components and orientation of a JPEG from its segments, nothing decoded.

    Source: ITU-T T.81, annex B; EXIF 2.32, section 4.6.
    """
    place, end, orientation = 2, len(data), 1
    while place + 4 <= end:
        if data[place] != 0xFF:
            raise DamagedSample("a JPEG whose segments are broken at byte %d" % place)
        marker = data[place + 1]
        if marker == 0xFF or 0xD0 <= marker <= 0xD8 or marker == 0x01:
            place += 1 if marker == 0xFF else 2
            continue
        length = (data[place + 2] << 8) | data[place + 3]
        if marker in _FRAMES and place + 10 <= end:
            height, width = struct.unpack(">HH", bytes(data[place + 5 : place + 9]))
            return JpegHeader(width, height, data[place + 9], marker in _PROGRESSIVE, orientation)
        if marker == 0xE1 and bytes(data[place + 4 : place + 10]) == b"Exif\0\0":
            orientation = _orientation(bytes(data[place + 10 : place + 2 + length]))
        if length < 2 or marker in (0xDA, 0xD9):
            break
        place += 2 + length
    raise DamagedSample("a JPEG without a frame")


def _by_simplejpeg(data, header, recipe, limits):
    try:
        import simplejpeg
    except ImportError:
        return _by_pillow(data, limits), 1
    atleast = _enough(header, recipe)
    buffer = _buffer("pixels", header.width * header.height * 3)
    try:
        pixels = simplejpeg.decode_jpeg(data, "RGB", buffer=buffer, **atleast)
    except ValueError as error:
        text = str(error).lower()
        if any(word in text for word in _HARMLESS):
            return _despite_remarks(data, buffer, atleast), header.orientation
        if any(word in text for word in _LOST):
            raise DamagedSample(str(error)) from None
        return _by_pillow(data, limits), 1
    return pixels, header.orientation


def _despite_remarks(data, buffer, atleast):
    import simplejpeg

    try:
        return simplejpeg.decode_jpeg(data, "RGB", buffer=buffer, strict=False, **atleast)
    except ValueError as error:
        raise DamagedSample(str(error)) from None


def _enough(header, recipe):
    """Least size at which a JPEG may be decoded, so that the crop still has ``size`` pixels."""
    if recipe is None or not recipe.is_scaled or recipe.is_random:
        return {}
    side = min(header.width, header.height) * recipe.crop_frac
    share = recipe.size / side
    if share > 0.5:  # Between full and half size the transform costs more than it saves.
        return {}
    return {
        "min_height": math.ceil(header.height * share),
        "min_width": math.ceil(header.width * share),
    }


def _by_pillow(data, limits):
    """What Pillow decodes, upright, as RGB."""
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise DamagedSample("not a JPEG, and Pillow is missing: pip install pillow") from None
    try:
        with Image.open(io.BytesIO(data), formats=_PILLOW_FORMATS) as image:
            _check_size(image.width, image.height, limits)
            return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    except DamagedSample:
        raise
    except UnidentifiedImageError:
        why = "no image of a format that Pillow reads"
    except Exception as error:  # noqa: BLE001 - Pillow raises a score of types for broken files
        why = error or type(error)
    raise DamagedSample("%s (begins with %r)" % (why, bytes(data[:8])))


def _check_size(width, height, limits):
    if width < 1 or height < 1:
        raise DamagedSample("an image of %d x %d pixels" % (width, height))
    if width * height > limits.pixels:
        raise DamagedSample("%d x %d pixels, over the limit of %d" % (width, height, limits.pixels))


def _orientation(exif):
    """EXIF orientation 1-8 from a TIFF block; 1 where it says nothing sensible."""
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is None or len(exif) < 8:
        return 1
    (start,) = struct.unpack(order + "I", exif[4:8])
    if start + 2 > len(exif):
        return 1
    (entries,) = struct.unpack(order + "H", exif[start : start + 2])
    for place in range(start + 2, min(start + 2 + 12 * entries, len(exif) - 11), 12):
        tag, kind, _, value = struct.unpack(order + "HHIH", exif[place : place + 10])
        if tag == _ORIENTATION_TAG and kind == 3:
            return value if 1 <= value <= 8 else 1
    return 1


def _turned(pixels, orientation):
    """View of pixels as they are meant to be seen."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.transpose(1, 0, 2)
    upside_down = orientation in (3, 4, 7, 8)
    mirrored = orientation in (2, 3, 6, 7)
    return pixels[:: -1 if upside_down else 1, :: -1 if mirrored else 1]


def _packed(pixels):
    """The pixels without gaps, copied into a buffer of this thread where there are some."""
    if pixels.flags.c_contiguous and pixels.flags.writeable:
        return pixels
    packed = _buffer("packed", pixels.size)[: pixels.size].reshape(pixels.shape)
    packed[:] = pixels
    return packed


def _buffer(name, num_bytes):
    """A buffer of this thread of at least so many bytes, reused from call to call."""
    buffer = getattr(_own, name, None)
    if buffer is None or buffer.size < num_bytes:
        buffer = np.empty(num_bytes, np.uint8)
        setattr(_own, name, buffer)
    return buffer
