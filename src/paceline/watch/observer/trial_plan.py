"""What is tried next in a script, from what is known of it: pure functions of mappings and lists.

Standard library only; runs in the user's Python, in the first rank.
"""

import statistics

#: A block of steps takes about so long, within these numbers of steps; short steps, which differ
#: most from each other, are as many as fill the second length.
BLOCK_S, LEAST_STEPS, MOST_STEPS, SHORT_BLOCK_S = 1.0, 6, 24, 0.5
_MOST_ROUNDS = 12
#: Times that a trial is made at least, where it is not clearly slower; loaders take long to begin.
_LEAST_TIMES, _LEAST_TIMES_LOADER = 3, 2
#: Blocks where the script is measured as it is, and nothing is tried.
_NUM_MEASURED = 5
#: Share of a step in waiting from which other loaders are tried.
_WAIT_FRAC = 0.04
#: Batches of so many samples are tried larger.
_LARGE_BATCH = 512
#: Share of the time that may be gone when a further chunk begins.
_LAST_FRAC = 0.75
#: Share of a sample that its first reading costs from which files that were read are tried.
_COLD_FRAC = 0.2
#: What takes so much longer is not tried again.
_SLOWER = 1.15
#: A gain is in doubt until it is surely more than 5 %, or surely less.
_LEAST_GAIN = 1 / 1.05
#: Steps after which the few batches of a feed have all been read.
_NUM_WARM_BATCHES = 5
#: Steps that are made one where an all-reduce is to be paid less often.
_ACCUMULATED = 4
#: Epochs of fewer steps show what starting their workers costs.
_SHORT_EPOCH = 200
#: Steps in which a profiler records what a GPU does.
_NUM_PROFILED = 3
OWN = {"as": "own"}
REPLAY = {"as": "replay"}
#: A loader of the few first batches of an epoch, which lie in memory soon.
READ_AGAIN = {"as": "loader", "is_read_again": True}


def chunk(number, facts, results, elapsed_s, options, doubt):
    """The next blocks and probes; empty when all is done.

    Args:
        number: Of the chunk, 1 being the first.
        facts: What was read in the warm steps.
        results: Blocks and probes so far.
        elapsed_s: Since the first block.
        options: ``limit_s``, and ``skip`` with names of trials to leave out.
        doubt: The module of that name.
    """
    skipped = set(options.get("skip", ()))
    if options.get("is_measured_only"):
        own = block("own", facts, is_cold=True)
        found = [dict(own, is_new=True)] + [own] * (_NUM_MEASURED - 1) if number == 1 else []
    elif number == 1:
        found = _first(facts)
    else:
        is_time = number <= _MOST_ROUNDS + 1 and elapsed_s < _LAST_FRAC * options["limit_s"]
        found = _round(facts, results, number, doubt) if is_time else []
    if not found and number > 1:
        found = _last(facts, results)
    return [one for one in found if one["name"] not in skipped]


def _last(facts, results):
    """What comes after all else: a host that was profiled once is slower from then on."""
    if facts["device"] != "cuda" or any(one["name"] == "profile" for one in results):
        return []
    return [block("profile", facts, is_cold=True, is_profiled=True, num_steps=_NUM_PROFILED)]


def block(name, facts, feed=OWN, settings=None, **more):
    """A block of steps.

    Args:
        name: What it tries.
        facts: Of the script.
        feed: Where its batches come from.
        settings: That are made for it.
        more: Further entries.
    """
    cost = max(1.0, more.get("longer", 1.0))
    step_s = max(5e-3, facts["step_s"] * cost)
    steps = int(max(LEAST_STEPS, SHORT_BLOCK_S / step_s, min(MOST_STEPS, BLOCK_S / step_s)))
    if feed is not REPLAY and feed["as"] != "replay":
        # What was loaded ahead while others ran is no rate.
        workers = feed.get("workers", facts["num_workers"]) or 0
        ahead = workers * facts["prefetch_factor"]
        epoch = facts["epoch_steps"]
        if epoch and epoch <= 2 * MOST_STEPS:
            # Whole epochs, so that each has its share of their beginnings.
            steps, ahead = epoch * max(1, round(steps / epoch)), min(ahead, epoch)
        elif workers:
            steps = max(steps, 2 * ahead)
        if feed is OWN and not more.get("is_cold"):
            ahead = 0
        more["warm"] = more.get("warm", 2) + ahead
    if more.get("longer", 1.0) > 1.0:
        steps = max(4, steps)
    together = (settings or {}).get("accumulated", 1)
    steps = together * -(-steps // together)
    found = {"name": name, "feed": feed, "settings": settings or {}, "warm": 2, "num_steps": steps}
    found.update(more)
    return found


def _first(facts):
    if facts["is_unfed"]:
        return _first_unfed(facts)
    ahead = (facts["num_workers"] or 0) * facts["prefetch_factor"]
    own, replay = block("own", facts, is_cold=True), block("replay", facts, REPLAY)
    return [
        # From the beginning of an epoch, so that what that costs is seen once.
        dict(own, is_new=True),
        replay,
        own,
        replay,
        block("lines", facts, REPLAY, lines=True, warm=3, num_steps=LEAST_STEPS),
        {"name": "drain", "probe": "drain", "num_skipped": ahead},
        {"name": "batch", "probe": "batch"},
    ]


def _first_unfed(facts):
    """Without a loader there is nothing to replay: the lines are timed as the script goes on."""
    own = block("own", facts)
    lines = block("lines", facts, lines=True, warm=3, num_steps=LEAST_STEPS)
    return [own, own, lines]


def _step_s(one):
    """Seconds of a step in a block, without what stood in line behind others and the longest."""
    _, busy_s, own_s = one["machine"][:3]
    share = min(1.0, 1e9 * max(0.0, busy_s - own_s) / max(1.0, sum(one["stood"])))
    calm = sorted(a - share * b for a, b in zip(one["steps"], one["stood"]))
    inner = calm[: max(1, len(calm) - len(calm) // 10)]
    return sum(inner) / len(inner) / 1e9


def _variants(facts, results):
    """What is worth a trial in this script."""
    if facts["is_unfed"]:
        return [block(name, facts, settings=how) for name, how in _settings(facts)]
    replay_s = _median_s(results, "replay")
    found = []
    if facts["device"] == "cuda" and facts["num_workers"] is not None and not facts["pinned"]:
        found.append(block("pinned", facts, {"as": "loader", "pinned": True}))
    if _is_waiting(facts, results, replay_s):
        found += _loaders(facts, results)
    found += [block(name, facts, settings=how) for name, how in _settings(facts)]
    found += _larger(facts, replay_s)
    return found


def _is_waiting(facts, results, replay_s):
    """Whether input takes a part of a step: the script waits for it, or workers take its cores."""
    waits = [
        one["parts"]["wait"] / max(1, sum(one["steps"])) for one in results if one["name"] == "own"
    ]
    is_slower = replay_s < (1 - _WAIT_FRAC) * _median_s(results, "own")
    return statistics.median(waits) > _WAIT_FRAC or bool(facts["num_workers"] and is_slower)


def _loaders(facts, results):
    cores, now, epoch = facts["num_cores"], facts["num_workers"], facts["epoch_steps"]
    wanted = sorted({1, 2, min(4, 2 * cores), cores // 2, cores} - {0, now})
    is_short = bool(not facts["persistent"] and epoch and epoch < _SHORT_EPOCH)
    found = []
    for workers in wanted:
        name, feed = "workers %d" % workers, {"as": "loader", "workers": workers}
        if is_short:
            name, feed["persistent"] = name + " persistent", True
        found.append(block(name, facts, feed))
    if is_short and now:
        feed = {"as": "loader", "workers": now, "persistent": True}
        found.append(block("persistent", facts, feed))
    if now:  # What its own workers make, by workers that are begun as late as those of a trial.
        found.append(block("anew", facts, {"as": "loader"}))
    batch = next((one for one in results if one["name"] == "batch"), {})
    if batch.get("has_indices"):
        found.append(block("free samples", facts, {"as": "loader", "free_samples": True}))
        if batch["sample_s"] - batch["again_s"] > _COLD_FRAC * batch["sample_s"]:
            # Made where all batches are made, and only one of a few: warm after a round of them.
            found.append(block("read again", facts, READ_AGAIN, warm=_NUM_WARM_BATCHES))
    if batch.get("is_default_collate"):
        found.append(block("collate", facts, {"as": "loader", "collate": "default"}))
    return found


def _settings(facts):
    cores, ranks = facts["num_cores"], facts["world_size"]
    wanted = sorted({max(1, cores // ranks), 1} - {facts["num_threads"]})
    if facts["device"] == "cpu":
        for threads in wanted:
            yield "threads %d" % threads, {"threads": threads}
    elif facts["may_tf32"]:
        yield "tf32", {"tf32": True}
    if facts["num_frozen"]:
        yield "frozen", {"frozen": True}
    if facts["weights"] == "torch.float64":
        yield "fp32", {"fp32": True}
    if facts["may_bf16"]:
        yield "bf16", {"autocast": "bfloat16"}
    if facts["num_saves"]:
        yield "no saves", {"saves": False}
    if facts["finds_unused"] and facts["has_no_unused"]:
        yield "all used", {"find_unused": False}
    if facts["is_ddp"]:
        yield "no sync", {"sync": False}
        yield "accumulate %d" % _ACCUMULATED, {"accumulated": _ACCUMULATED}


def _larger(facts, replay_s):
    batch = facts["batch"]
    if not batch:
        return []
    found = []
    for times in (2, 8, 32):
        if batch * times <= _LARGE_BATCH and (times < 32 or batch <= 4):
            name, feed = "batch x%d" % times, {"as": "replay", "times": times}
            longer = max(1.0, times * replay_s / facts["step_s"] / 2)
            found.append(block(name, facts, feed, longer=longer, times=times))
    return found


def _round(facts, results, number, doubt):
    """The script as it is, and what is still worth a trial beside it; empty where nothing is.

    What was clearly slower is tried once, and anything else until a gain is sure or there is none.
    """
    seen = _seen(results)
    by_chance = doubt.chance(seen)
    variants = [
        one
        for one in _variants(facts, results)
        if _is_open(one, doubt.shares(seen, one["name"]), by_chance, doubt)
    ]
    if not variants and number > 2:
        return []
    larger = [one for one in variants if one["feed"]["as"] == "replay"]
    found = [block("own", facts, is_cold=True)]
    found += [one for one in variants if one["feed"]["as"] != "replay"]
    return found + ([block("replay", facts, REPLAY), *larger] if larger else [])


def _seen(results):
    """Names of blocks and the seconds of a step in them, as `doubt` takes them."""
    return [
        (one["name"], _step_s(one) / one.get("times", 1)) for one in results if one.get("steps")
    ]


def _is_open(variant, found, by_chance, doubt):
    is_loader = variant["feed"]["as"] == "loader"
    if found and statistics.median(found) > _SLOWER and variant["name"] != "anew":
        return False
    if len(found) < (_LEAST_TIMES_LOADER if is_loader else _LEAST_TIMES):
        return True
    low, _, high = doubt.interval(found, by_chance)
    return low < _LEAST_GAIN < high


def _median_s(results, name):
    times = [_step_s(one) for one in results if one["name"] == name and one["steps"]]
    return statistics.median(times) if times else 0.0
