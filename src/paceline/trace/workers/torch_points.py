"""Where a pass is traced: at enough batches and lengths to know it at all of them.

Standard library only. What is seen at a point is (topology without deaths, deaths, numbers).
"""

BATCHES = (3, 5, 7)
SEQUENCES = (11, 17, 23)
#: A length longer than what models pad to, and shorter than the shortest positions they know.
FAR_SEQUENCE = 499
#: Exponents of batch and length that an extent may have beside 1, B, S and B·S.
POWERS = ((0, 2), (1, 2), (2, 0), (2, 1), (2, 2))


def at_lengths(see):
    """(points, topology, numbers) at four corners and a far point; None where length changes ops.

    The far point is beyond what models pad or cut to (chunks, windows); it is nearer where the
    model takes no such length.
    """
    corners = [(batch, seq) for seq in SEQUENCES[:2] for batch in BATCHES[:2]]
    views = _agreeing(see, corners)
    if views is None:
        return None
    for seq in (FAR_SEQUENCE, SEQUENCES[2]):
        point = (BATCHES[2], seq)
        try:
            far = see(point)
        except Exception:
            if seq == SEQUENCES[2]:
                raise
            continue
        points = [*corners, point]
        return _joined(points, [*views, far]) if _is_polynomial(points, [*views, far]) else None


def at_batches(see, seq):
    """As `at_lengths`, for three batches at one length."""
    points = [(batch, seq) for batch in BATCHES]
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
    topology["death"] = [min(each) for each in zip(*[deaths for _, deaths, _ in views])]  # noqa: B905
    return points, topology, [numbers for _, _, numbers in views]


def _is_polynomial(points, views):
    """Whether ops agree, and every extent is one of 1, B, S and B·S or of a constant and a power.

    The rule is `paceline.trace.polynomial.fit`'s, applied to the values that are distinct.
    """
    if views[0][0] != views[-1][0]:
        return False
    rows = set()
    for name in ("dims", "bytes"):
        rows.update(zip(*[numbers[name] for _, _, numbers in views]))  # noqa: B905
    return all(_is_bilinear(points, row) or _is_power(points, row) for row in rows)


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
    for i, j in POWERS:
        at = [batch**i * seq**j for batch, seq in points]
        slope = (row[-1] - row[0]) / (at[-1] - at[0])
        if all(_is_near(row[0] + slope * (x - at[0]), v) for x, v in zip(at, row)):  # noqa: B905
            return True
    return False


def _is_near(expected, seen):
    return abs(expected - seen) <= 1e-6 * (1 + abs(seen))
