"""Blocks of a model: what is wrapped, recomputed and gathered one by one."""

from torch import nn


def blocks(model):
    """Modules that repeat, as the planner has it: those whose name is a number, outermost first.

    Returns:
        Modules with weights, in the model's order, none inside another.
    """
    found = []
    for name, child in model.named_children():
        if not name.isdigit():
            found += blocks(child)
        elif _has_weights(child):
            found.append(child)
    return found


def units(model):
    """Modules that are gathered one by one: blocks, and what lies beside them with weights.

    Modules that share a weight with another stay with the root, which gathers what is left.
    """
    chosen = blocks(model)
    inside = {id(one) for one in chosen}
    above = {id(part) for part in model.modules() if inside & set(map(id, part.modules()))} - inside
    beside = []
    _collect(model, inside, above, beside)
    shared = shared_weights(model)
    return [one for one in chosen + beside if not _holds(one, shared)]


def shared_weights(model):
    """Weights that stand at two names, by id, with their names."""
    names = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(weight), []).append(name)
    return {key: tuple(held) for key, held in names.items() if len(held) > 1}


def _collect(module, inside, above, found):
    for child in module.children():
        if id(child) in inside:
            continue
        if id(child) in above or isinstance(child, (nn.ModuleList, nn.ModuleDict)):
            _collect(child, inside, above, found)
        elif _has_weights(child):
            found.append(child)


def _has_weights(module):
    return next(module.parameters(), None) is not None


def _holds(module, weights):
    return any(id(weight) in weights for weight in module.parameters())
