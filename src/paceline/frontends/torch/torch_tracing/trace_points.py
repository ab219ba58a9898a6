"""Where a pass is traced: at enough batches and lengths to know it at all of them.

Standard library only. What is seen at a point is (topology without deaths, deaths, numbers).
"""

import contextlib

BATCHES = (3, 5, 7)
#: Where a step splits its batch into equal parts.
EVEN_BATCHES = (16, 32, 48)
SEQUENCES = (11, 17)
#: Lengths longer than what models pad or cut to; where a model takes no such length, the next.
_FAR_SEQUENCES = (1031, 499, 23)
#: Multiples of what models pad to (chunks), beyond what they look at (windows), and the far one.
_LONG_SEQUENCES = (512, 1024)
_LONG_FAR_SEQUENCES = (2048,)
#: Exponents of batch and length that an extent may have beside 1, B, S and B·S.
_POWERS = ((0, 2), (1, 2), (2, 0), (2, 1), (2, 2))


def at_lengths(see, length, batches=BATCHES, longest=None):
    """((points, topology, numbers), shortest length known); what was seen is None if ops vary.

    Known for all lengths; else, where chunks or windows bend the growth, from `_LONG_SEQUENCES` on;
    else, where the ops follow the length, at ``length`` only, and the shortest is None.
    """
    views = _agreeing(see, _corners(SEQUENCES, batches))
    if views is not None:
        far = [one for one in _FAR_SEQUENCES if longest is None or one <= longest]
        found = _proven(see, views, SEQUENCES, far or _FAR_SEQUENCES, batches)
        if found is not None:
            return found, 1
        if length >= _LONG_SEQUENCES[0]:
            found = _at_long_lengths(see, batches)
            if found is not None:
                return found, _LONG_SEQUENCES[0]
    return at_batches(see, length, batches), None


def _corners(sequences, batches):
    return [(batch, seq) for seq in sequences for batch in batches[:2]]


def _at_long_lengths(see, batches):
    """(points, topology, numbers); None where they do not agree, or the model takes none such."""
    try:
        views = _agreeing(see, _corners(_LONG_SEQUENCES, batches))
        return views and _proven(see, views, _LONG_SEQUENCES, _LONG_FAR_SEQUENCES, batches)
    except Exception:  # noqa: BLE001  A model's own words for a length that it does not take.
        return None


def _proven(see, views, sequences, far_sequences, batches):
    """What the corners tell, if a point far outside agrees."""
    point, far = _far(see, far_sequences, batches[2])
    points, views = [*_corners(sequences, batches), point], [*views, far]
    return _joined(points, views) if _is_polynomial(points, views) else None


def _far(see, sequences, batch):
    """The first point that the model takes, and what was seen there."""
    for seq in sequences[:-1]:
        # A model has words of its own for a length that it does not take.
        with contextlib.suppress(Exception):
            return (batch, seq), see((batch, seq))
    point = (batch, sequences[-1])
    return point, see(point)


def at_batches(see, seq, batches=BATCHES):
    """(points, topology, numbers) for three batches at one length; None where ops vary."""
    points = [(batch, seq) for batch in batches]
    views = _agreeing(see, points)
    return None if views is None else _joined(points, views)


def _agreeing(see, points):
    """What was seen at some points; None where the ops are not the same at each."""
    views = [see(points[0]), see(points[1])]
    if views[0][0] != views[1][0]:
        # What a first call computes and keeps (relative positions) is no part of a later step.
        views[0] = see(points[0])
    for point in points[2:]:
        if views[0][0] != views[1][0]:
            return None
        views.append(see(point))
    return views if views[0][0] == views[-1][0] else None


def _joined(points, views):
    topology = views[0][0]
    # A cycle that a first call leaves behind holds storages longer: the earliest death is the true.
    topology["death"] = [min(each) for each in zip(*[deaths for _, deaths, _ in views])]
    return points, topology, [numbers for _, _, numbers in views]


def _is_polynomial(points, views):
    """Whether ops agree, and every extent is one of 1, B, S and B·S or of a constant and a power.

    So is the size of every storage, or it is that of a tensor in it. The rule is that of
    `polynomial.fit` and of `paceline.model.graph.raw`, applied to the values that are
    distinct.
    """
    topology = views[0][0]
    if topology != views[-1][0]:
        return False
    extents = list(zip(*[numbers["dims"] for _, _, numbers in views]))
    sizes = list(zip(*[numbers["bytes"] for _, _, numbers in views]))
    grows = {row: _is_bilinear(points, row) or _is_power(points, row) for row in set(extents)}
    if not all(grows.values()):
        return False
    left = {row for row in set(sizes) if not (_is_bilinear(points, row) or _is_power(points, row))}
    return not left or left <= _tensor_sizes(topology, extents)


def _tensor_sizes(topology, extents):
    """Bytes of every tensor at the points."""
    sizes, at = set(), 0
    for storage, ndim in zip(topology["tensor_storage"], topology["tensor_ndim"]):
        width = topology["element_bytes"][topology["storage_dtype"][storage]]
        product = tuple(width for _ in extents[0]) if extents else ()
        for row in extents[at : at + ndim]:
            product = tuple(a * b for a, b in zip(product, row))
        sizes.add(product)
        at += ndim
    return sizes


def _is_bilinear(points, row):
    """Whether the corners give what was seen at the last point."""
    (low, first), (high, last) = points[0], points[3]
    batch, seq = points[-1]
    across, along = (batch - low) / (high - low), (seq - first) / (last - first)
    near = row[0] + across * (row[1] - row[0])
    far = row[2] + across * (row[3] - row[2])
    return _is_near(near + along * (far - near), row[-1])


def _is_power(points, row):
    """Whether values are a constant and one monomial up to second powers."""
    for i, j in _POWERS:
        at = [batch**i * seq**j for batch, seq in points]
        slope = (row[-1] - row[0]) / (at[-1] - at[0])
        if all(_is_near(row[0] + slope * (x - at[0]), v) for x, v in zip(at, row)):
            return True
    return False


def _is_near(expected, seen):
    return abs(expected - seen) <= 1e-6 * (1 + abs(seen))
