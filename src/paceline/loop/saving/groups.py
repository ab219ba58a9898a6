"""An optimizer's groups by the names of their parameters, so that groups cut otherwise find theirs.

`parallelize` gives weights that lie on different ranks groups of their own, and a pipeline's stage
has its own weights alone: a run may go on with more or fewer groups than it was saved with.
"""

from paceline.loop.errors import LoopError

_NAMES_KEYS = ("params", "param_names")


def described(optimizer, names):
    """Groups by the name of their first parameter: place, names and settings.

    Mappings, which those of a pipeline's stages are merged from.

    ``names``: of parameters, by identity.
    """
    found = {}
    for at, group in enumerate(optimizer.param_groups):
        own = [names[id(one)] for one in group["params"]]
        settings = {key: value for key, value in group.items() if key not in _NAMES_KEYS}
        key = own[0] if own else "empty/%d" % at
        found[key] = {"at": at, "names": dict.fromkeys(own, 1), "settings": settings}
    return found


def matched(name, optimizer, names, saved):
    """The saved group of each group of an optimizer: of its parameters, whatever was beside them.

    Args:
        name: Of the optimizer, for messages.
        optimizer: As it is now.
        names: Of its parameters, by identity.
        saved: From `described`, with the names of all these parameters.

    Returns:
        A group of ``saved`` for each; None where one is empty here and there was none.

    Raises:
        LoopError: Parameters of a group were saved with different settings.
    """
    holders = {one: key for key, group in saved.items() for one in group["names"]}
    found = []
    for at, group in enumerate(optimizer.param_groups):
        keys = list(dict.fromkeys(holders[names[id(one)]] for one in group["params"]))
        keys = keys or sorted(key for key, one in saved.items() if one["at"] == at)
        for other in keys[1:]:
            _check_alike(name, keys[0], other, saved)
        found.append(saved[keys[0]] if keys else None)
    return found


def _check_alike(name, first, other, saved):
    """Refuse to join groups whose settings differ: one of them would be lost."""
    one, two = saved[first]["settings"], saved[other]["settings"]
    differing = sorted(key for key in {*one, *two} if one.get(key) != two.get(key))
    if differing:
        raise LoopError(
            "`%s` has `%s` and `%s` in one group, the save in two with different `%s`"
            % (name, first, other, "`, `".join(differing)),
            hint="make the optimizer's groups as they were, or save into another folder",
        )


def arranged(state, own, found, count):
    """What a scheduler keeps for each group, for the groups of now.

    Args:
        state: Of a scheduler, from the save.
        own: Its state now.
        found: From `matched`.
        count: Of groups in the save.

    >>> arranged({"base_lrs": [0.1]}, {"base_lrs": [1, 1]}, [{"at": 0}, {"at": 0}], 1)
    {'base_lrs': [0.1, 0.1]}
    """
    if isinstance(state, dict) and isinstance(own, dict):
        return {key: arranged(one, own.get(key), found, count) for key, one in state.items()}
    if not isinstance(state, list) or not isinstance(own, list):
        return state
    if len(state) == count and len(own) == len(found):
        return [own[k] if one is None else state[one["at"]] for k, one in enumerate(found)]
    if len(state) == len(own):
        return [arranged(one, mine, found, count) for one, mine in zip(state, own)]
    return state


def count_of(saved):
    """How many groups an optimizer had where it was saved.

    >>> count_of({"a": {"at": 0}, "b": {"at": 0}, "c": {"at": 1}})
    2
    """
    return 1 + max((one["at"] for one in saved.values()), default=-1)
