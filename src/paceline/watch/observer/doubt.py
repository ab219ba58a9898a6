"""What trials change of a step, and how sure that is: blocks of the same thing differ by chance.

Standard library only; it runs in the user's Python, where trials in doubt are repeated, and in
`paceline.watch.diagnosis`, where they are judged.
"""

import math
import statistics
from typing import Dict, List, Optional, Sequence, Tuple

#: Names of blocks, each with the seconds of a step of the script in it, in their order.
Blocks = Sequence[Tuple[str, float]]
#: Two-sided 99 %: of ten trials none misleads in 90 of 100 diagnoses.
_QUANTILE = 0.995
#: What a share differs by from block to block before anything was repeated, and how many degrees
#: of freedom that is worth: the middle of 88 recorded runs, which lay between 0.3 and 43 %.
_USUAL, _USUAL_DEGREES = 0.05, 2
#: Trials whose loader has as many workers as the script's, begun as late as those of ``anew``.
_LATE_LOADERS = ("free samples", "collate", "pinned")


def reference_of(name: str) -> str:
    """The blocks that a trial is compared with: the script as it is, or the same few batches."""
    return "replay" if name.startswith("batch") else "own"


def shares(blocks: Blocks, name: str) -> List[float]:
    """What a step takes in each block of a trial, as a share of its reference at that time.

    A reference is interpolated between its nearest blocks before and after: a machine that gets
    slower meanwhile slows both. Workers that are begun late inherit another heap than those of the
    script: a trial of theirs wins what it wins beside workers that are begun as late.
    """
    found = []
    late = name in _LATE_LOADERS
    for place, (one, step_s) in enumerate(blocks):
        base_s = _at(blocks, reference_of(name), place)
        if one != name or base_s is None:
            continue
        fresh_s = _at(blocks, "anew", place) if late else None
        found.append(step_s / base_s if fresh_s is None else 1.0 - (fresh_s - step_s) / base_s)
    return found


def _at(blocks: Blocks, name: str, place: int) -> Optional[float]:
    """What a step of a name would have taken at a place; None without any."""
    places = [at for at, (one, _) in enumerate(blocks) if one == name and at != place]
    before = max((at for at in places if at < place), default=None)
    after = min((at for at in places if at > place), default=None)
    if before is None or after is None:
        near = after if before is None else before
        return None if near is None else blocks[near][1]
    weight = (place - before) / (after - before)
    return (1.0 - weight) * blocks[before][1] + weight * blocks[after][1]


def chance(blocks: Blocks) -> Tuple[float, int]:
    """Standard deviation of a share by chance, from all that was repeated; degrees of freedom.

    What stands between two of its kind should take what they take; a trial should win in each
    round what it wins in the others. What is usual counts as well, for few blocks say little.

    Source:
        Smyth, "Linear Models and Empirical Bayes Methods for Assessing Differential Expression in
        Microarray Experiments", Statistical Applications in Genetics 3(1), 2004: moderated t.
    """
    squares, degrees = _USUAL_DEGREES * _USUAL**2, _USUAL_DEGREES
    for name in dict.fromkeys(one for one, _ in blocks):
        if name in ("own", "replay"):
            places = [at for at, (one, _) in enumerate(blocks) if one == name][1:-1]
            apart = [blocks[at][1] / (_at(blocks, name, at) or math.nan) - 1.0 for at in places]
            squares, degrees = squares + sum(one * one for one in apart), degrees + len(apart)
        elif len(found := shares(blocks, name)) > 1:
            middle = statistics.mean(found)
            squares += sum((one / middle - 1.0) ** 2 for one in found)
            degrees += len(found) - 1
    return math.sqrt(squares / degrees), degrees


def interval(
    found: Sequence[float], by_chance: Tuple[float, int], error: float = 0.0
) -> Tuple[float, float, float]:
    """Low end, middle and high end of what a trial makes of a step.

    Args:
        found: Its shares, at least one.
        by_chance: What `chance` gives.
        error: Standard error of one share as steps within blocks differ; it counts where too few
            rounds tell what chance does.
    """
    deviation, degrees = by_chance
    middle = statistics.median(found)
    spread = statistics.stdev(found) if len(found) > 1 else 0.0
    wide = max(deviation * middle, spread, error if len(found) < 3 else 0.0)
    half = student(degrees) * wide / math.sqrt(len(found))
    return max(0.0, middle - half), middle, middle + half


def student(degrees: int) -> float:
    """Quantile of Student's t, by the first terms of its expansion in 1 / degrees.

    Source:
        Abramowitz and Stegun, "Handbook of Mathematical Functions", 1964, 26.7.5.

    >>> [round(student(n), 1) for n in (3, 10, 1000)]
    [5.6, 3.2, 2.6]
    """
    x = statistics.NormalDist().inv_cdf(_QUANTILE)
    terms: Dict[int, float] = {
        1: (x**3 + x) / 4,
        2: (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        3: (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
    }
    return x + sum(value / float(degrees) ** power for power, value in terms.items())
