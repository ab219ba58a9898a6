"""What a run consists of, taken apart for a save and put together again.

Tensors are named (``model/conv.weight``, ``optimizer/conv.weight/exp_avg``) and saved as they are
placed; the rest is a tree of plain values. The optimizer's state is named by its parameters, so
that it is found again on any number of ranks and under any wrapper.
"""

import math

import torch
from torch.optim import Optimizer

from paceline.loop.errors import LoopError
from paceline.loop.saving import groups
from paceline.loop.saving.values import decoded, encoded

#: Names that wrappers put into those of parameters.
_WRAPPERS = ("module", "_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")


def taken_apart(objects):
    """Tensors by name, and the tree of what is none.

    Args:
        objects: By their names in the call of `resume`: modules (or lists of them, for stages),
            optimizers, and whatever else has `state_dict`.

    Returns:
        Tensors that the training goes on to change, and a tree that JSON can hold.
    """
    tensors, tree = {}, {}
    names = parameter_names(objects)
    for name, held in sorted(objects.items()):
        if is_module(held):
            state = _module_state(held)
        elif _is_named(held, names):
            state = _optimizer_state(held, names)
        else:
            state = held.state_dict()
        tree[name] = _without_tensors(state, name, tensors)
    return tensors, tree


def put_together(objects, tree, read):
    """Give objects the state of a save.

    Args:
        objects: As in `taken_apart`, made as they were then.
        tree: From the save, of all ranks.
        read: Function that fills a mapping of tensors by name from the save, in place.

    Raises:
        LoopError: They differ from what was saved.
    """
    _compare("object", set(objects), set(tree))
    names = parameter_names(objects)
    is_part = any(is_module(one) and not is_whole(one) for one in objects.values())
    wanted, after, matches = {}, [], {}
    for name, held in sorted(objects.items()):
        if is_module(held):
            after.append(_fill_module(name, held, tree[name], wanted))
        elif _is_named(held, names):
            found = _matched(name, held, names, tree[name], is_part)
            matches[id(held)] = (found, groups.count_of(tree[name]["groups"]))
            after.append(_fill_optimizer(name, held, names, tree[name], wanted, found, is_part))
    for name, held in sorted(objects.items()):
        if not is_module(held) and not _is_named(held, names):
            match = matches.get(id(getattr(held, "optimizer", None)))
            after.append(_fill_other(name, held, tree[name], wanted, match))
    read(wanted)
    for finish in after:
        finish()


def refuse_nameless(objects, was, now):
    """Refuse optimizers that count their parameters, which may lie at other places now.

    Args:
        objects: As in `taken_apart`.
        was: How weights were split when saved, for the message.
        now: How they are.

    Raises:
        LoopError: An optimizer says its state in its own way, and weights are split in another.
    """
    names = parameter_names(objects)
    for name, held in objects.items():
        if isinstance(held, Optimizer) and not _is_named(held, names):
            raise LoopError(
                "`%s` counts its parameters instead of naming them, and they are split otherwise: "
                "saved as %s, now %s" % (name, was or "whole", now or "whole"),
                hint="go on with the strategy of the save, or an optimizer of torch.optim over "
                "parameters of the model",
            )


def is_module(held):
    """Whether it is a module or the stages of one."""
    parts = held if isinstance(held, (list, tuple)) else [held]
    return bool(parts) and all(isinstance(part, torch.nn.Module) for part in parts)


def modules_of(objects):
    """All modules among objects."""
    for held in objects.values():
        if is_module(held):
            yield from held if isinstance(held, (list, tuple)) else [held]


def plain_name(name):
    """The name of a parameter without those of wrappers (DDP, `torch.compile`, recompute).

    >>> plain_name("module._orig_mod.layer.weight")
    'layer.weight'
    """
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def parameter_names(objects):
    """Names of parameters by identity; with the object's name in front where there are several."""
    roots = [name for name, held in objects.items() if is_module(held)]
    names = {}
    for root in roots:
        held = objects[root]
        for module in held if isinstance(held, (list, tuple)) else [held]:
            first = getattr(module, "first_names", {})
            for name, parameter in module.named_parameters():
                plain = first.get(plain_name(name), plain_name(name))
                names.setdefault(id(parameter), plain if len(roots) == 1 else root + "." + plain)
    return names


def _is_named(held, names):
    """Whether it is an optimizer of which every parameter has a name."""
    if not isinstance(held, Optimizer) or type(held).state_dict is not Optimizer.state_dict:
        return False
    return all(id(p) in names for group in held.param_groups for p in group["params"])


def _module_state(held):
    state = {}
    for module in held if isinstance(held, (list, tuple)) else [held]:
        for key, value in module.state_dict().items():
            state[plain_name(key)] = value
    return state


def _optimizer_state(optimizer, names):
    """State by the names of parameters, and the settings of groups."""
    state = {
        names[id(p)]: dict(optimizer.state.get(p, {}))
        for group in optimizer.param_groups
        for p in group["params"]
    }
    return {"state": state, "groups": groups.described(optimizer, names)}


def _without_tensors(value, path, tensors):
    """A tree in which a tensor is ``{"$tensor": name, "shape": …, "dtype": …}``."""
    if isinstance(value, torch.Tensor):
        tensors[path] = value.detach()
        dtype = str(value.dtype).replace("torch.", "")
        kind = value.device.type
        return {"$tensor": path, "shape": list(value.shape), "dtype": dtype, "device": kind}
    if isinstance(value, dict) and any(_has_tensor(one) for one in value.values()):
        if not all(isinstance(key, (str, int)) for key in value):
            raise LoopError(
                "`%s` has tensors under keys that are neither text nor numbers" % path,
                hint="give `state_dict` plain keys",
            )
        pairs = [
            [key, _without_tensors(one, "%s/%s" % (path, key), tensors)]
            for key, one in value.items()
        ]
        if any(isinstance(key, int) for key in value):
            return {"$dict": pairs}
        return dict(pairs)
    if isinstance(value, (list, tuple)) and any(_has_tensor(one) for one in value):
        return [_without_tensors(v, "%s/%d" % (path, at), tensors) for at, v in enumerate(value)]
    return encoded(value, path)


def _has_tensor(value):
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, dict):
        return any(_has_tensor(one) for one in value.values())
    return isinstance(value, (list, tuple)) and any(_has_tensor(one) for one in value)


def merged(trees, differing, path=""):
    """One tree of those of all ranks: what one of them alone holds is kept, such as its stage.

    Args:
        trees: Of the ranks, in their order.
        differing: Gets the paths of values that differ; rank 0's is kept.
        path: Of these trees.

    >>> merged([{"a": {"x": 1}}, {"a": {"y": 2}}], [])
    {'a': {'x': 1, 'y': 2}}
    """
    first = trees[0]
    if not isinstance(first, dict) or "$tensor" in first:
        if any(tree != first for tree in trees):
            differing.append(path)
        return first
    keys = []
    for tree in trees:
        keys.extend(key for key in tree if key not in keys)
    return {
        key: merged([t[key] for t in trees if key in t], differing, "%s/%s" % (path, key))
        for key in keys
    }


def _fill_module(name, held, tree, wanted):
    """Ask for the tensors of a module; they are read in place."""
    state = _module_state(held)
    whole = is_whole(held)
    _compare("`%s`: tensor" % name, set(state), set(tree), is_part=not whole)
    others = {}
    for key, value in state.items():
        if isinstance(value, torch.Tensor):
            _check_like(name, key, value, tree[key])
            wanted["%s/%s" % (name, key)] = value.detach()
        else:
            others[key] = decoded(tree[key])

    def finish():
        """Load what is no tensor."""
        for module in held if isinstance(held, (list, tuple)) else [held]:
            if others:
                mine = module.state_dict()
                module.load_state_dict({k: others.get(plain_name(k), v) for k, v in mine.items()})

    return finish


def is_whole(held):
    """Whether a rank holds the whole of it, and not a stage."""
    return not isinstance(held, (list, tuple)) and not getattr(held, "is_stage", False)


def _matched(name, optimizer, names, tree, is_part):
    """The saved group of each group, where all parameters are in the save."""
    own = {names[id(p)] for group in optimizer.param_groups for p in group["params"]}
    _compare("`%s`: parameter" % name, own, set(tree["state"]), is_part)
    return groups.matched(name, optimizer, names, tree["groups"])


def _fill_optimizer(name, optimizer, names, tree, wanted, found, is_part):
    """Ask for the state of an optimizer, placed as its parameters are."""
    own = {names[id(p)]: p for group in optimizer.param_groups for p in group["params"]}
    states = {}
    for key, parameter in own.items():
        for part, value in tree["state"][key].items():
            for one in _tensors_in(value):
                _check_cut("`%s`: `%s` of `%s`" % (name, part, key), one, parameter, is_part)
                _room_for(one, parameter, wanted)
        states[key] = {part: decoded(value) for part, value in tree["state"][key].items()}
    settings = [{} if one is None else decoded(one["settings"]) for one in found]
    for one in _tensors_in(settings):
        _room_for(one, None, wanted)

    def finish():
        """Write states and settings into the optimizer, once all of them are known to fit."""
        optimizer.state.clear()
        for key, parameter in own.items():
            if states[key]:
                optimizer.state[parameter] = _filled(states[key], wanted)
        for group, values in zip(optimizer.param_groups, settings):
            for key, value in values.items():
                group[key] = _filled(value, wanted)

    return finish


def _check_cut(what, saved, parameter, is_part):
    """Refuse a state that is not cut as its parameter is, where parameters are cut."""
    size, own = math.prod(saved["shape"]), parameter.numel()
    is_odd = saved["shape"] != list(parameter.shape) and size > 1
    if is_odd and (hasattr(parameter, "to_local") or (is_part and size > own)):
        raise LoopError(
            "%s is %s, and the weight is %s: ranks that split the weight cannot split it alike"
            % (what, saved["shape"], list(parameter.shape)),
            hint="go on with `dp`, or with an optimizer that keeps one number for each weight",
        )


def _fill_other(name, held, tree, wanted, match):
    """Ask for the tensors of whatever else has a state; match is of a scheduler's optimizer."""
    state = held.state_dict()
    if match is not None:
        tree = groups.arranged(tree, state, *match)
    found = {}
    _without_tensors(state, name, found)
    for value in _tensors_in(tree):
        if value["$tensor"] in found:
            wanted[value["$tensor"]] = torch.empty_like(found[value["$tensor"]])
        else:
            _room_for(value, None, wanted)

    def finish():
        held.load_state_dict(_filled(decoded(tree), wanted))

    return finish


def _tensors_in(tree):
    if _is_tensor(tree):
        yield tree
    elif isinstance(tree, (dict, list, tuple)):
        for one in tree.values() if isinstance(tree, dict) else tree:
            yield from _tensors_in(one)


def _is_tensor(value):
    return isinstance(value, dict) and "$tensor" in value


def _filled(value, wanted):
    """A tree with its tensors in place."""
    if _is_tensor(value):
        return wanted[value["$tensor"]]
    if isinstance(value, dict):
        return type(value)({key: _filled(one, wanted) for key, one in value.items()})
    if isinstance(value, (list, tuple)):
        return type(value)(_filled(one, wanted) for one in value)
    return value


def _room_for(value, parameter, wanted):
    """A tensor to read a saved one into: placed as the parameter if it has its shape."""
    dtype = getattr(torch, value["dtype"])
    shape = tuple(value["shape"])
    if parameter is not None and tuple(parameter.shape) == shape and shape:
        room = torch.zeros_like(parameter, dtype=dtype, requires_grad=False).detach()
    else:
        on_device = parameter is not None and value["device"] != "cpu"
        room = torch.zeros(shape, dtype=dtype, device=parameter.device if on_device else "cpu")
    wanted[value["$tensor"]] = room
    return room


def _check_like(name, key, value, saved):
    dtype = str(value.dtype).replace("torch.", "")
    if not _is_tensor(saved) or list(value.shape) != saved["shape"] or dtype != saved["dtype"]:
        was = "%s of %s" % (saved.get("shape"), saved.get("dtype")) if _is_tensor(saved) else "none"
        raise LoopError(
            "`%s`: `%s` is a tensor %s of %s; the save has %s"
            % (name, key, list(value.shape), dtype, was),
            hint="build the model as it was, or save into another folder (`folder=`)",
        )


def _compare(what, own, saved, is_part=False):
    """Refuse names that only one side has; of a part, the save may have more."""
    missing, unknown = sorted(own - saved), [] if is_part else sorted(saved - own)
    if not missing and not unknown:
        return
    found = []
    if missing:
        found.append("not in the save: %s" % _few(missing))
    if unknown:
        found.append("only in the save: %s" % _few(unknown))
    raise LoopError(
        "the save is of something else: %s names differ (%s)" % (what, "; ".join(found)),
        hint="build everything as it was, or save into another folder (`folder=`)",
    )


def _few(names):
    more = len(names) - 3
    return ", ".join("`%s`" % name for name in names[:3]) + (" and %d more" % more) * (more > 0)
