"""Blocks of a model: what is wrapped, recomputed and gathered one by one."""

from torch import nn


def blocks(model):
    """Modules that repeat: those of the outermost lists, and else the parts of the outermost chain.

    Returns:
        Modules with parameters, in the model's order, none inside another.
    """
    found = []
    for child in _entries(model) if isinstance(model, nn.Sequential) else model.children():
        if isinstance(child, (nn.ModuleList, nn.Sequential)):
            found += [one for one in _entries(child) if _has_weights(one)]
        else:
            found += blocks(child)
    return found


def units(model):
    """Modules that are gathered one by one: blocks, and what lies beside them with weights.

    Modules that share a weight with another stay with the root, which gathers what is left.
    """
    chosen = blocks(model)
    inside = {id(part) for one in chosen for part in one.modules()}
    above = {id(model)}
    for part in model.modules():
        held = {id(one) for one in part.modules()}
        if held & {id(one) for one in chosen} - {id(part)}:
            above.add(id(part))
    beside = []
    _collect(model, inside | {id(one) for one in chosen}, above, beside)
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


def _entries(container):
    """Modules of a list or chain; chains inside a chain are taken apart."""
    found = []
    for child in container.children():
        if isinstance(child, (nn.Sequential, nn.ModuleList)) and len(list(child.children())) > 1:
            found += _entries(child)
        else:
            found.append(child)
    return found


def _has_weights(module):
    return next(module.parameters(), None) is not None


def _holds(module, weights):
    return any(id(weight) in weights for weight in module.parameters())
