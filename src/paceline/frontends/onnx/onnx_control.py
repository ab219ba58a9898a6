"""Operators of ONNX that choose, repeat and collect.

Standard library and torch only. A choice or a count that only data tells is refused.
"""

import torch
from onnx_file import Refused

_MOST_STEPS = 4_000


def _if(call, _condition):
    value = call.known(0)
    graph = call.attribute("then_branch" if bool(value.reshape(-1)[0]) else "else_branch")
    return tuple(call.scope.inner(graph, []))


def _loop(call, _count, condition=None, *carried):
    count = call.ints(0)
    body, carried, gathered = call.attribute("body"), list(carried), None
    keeps = True if condition is None else _truth(call, condition)
    step = 0
    while keeps and (count is None or step < count[0]):
        if step >= _MOST_STEPS:
            raise Refused("its loop %s runs more than %d times" % (call.title(), _MOST_STEPS),
                          "onnx-loop")  # fmt: skip
        made = call.scope.inner(body, [torch.tensor(step), torch.tensor(True), *carried])
        keeps = _truth(call, made[0])
        carried, extra = made[1 : 1 + len(carried)], made[1 + len(carried) :]
        gathered = [[*a, b] for a, b in zip(gathered or [[] for _ in extra], extra)]
        step += 1
    return (*carried, *[_stacked(call, one) for one in gathered or []])


def _truth(call, value):
    if value.is_meta:
        raise Refused("its loop %s ends when its data says so" % call.title(), "onnx-loop")
    return bool(value.reshape(-1)[0])


def _stacked(call, tensors, axis=0):
    if any(one.is_meta for one in tensors):
        tensors = [call.on_meta(one) for one in tensors]
    return torch.stack(tensors, axis)


def _scan(call, *given):
    """A body over the slices of its sequences, whose number is known."""
    body, count = call.attribute("body"), call.attribute("num_scan_inputs")
    states, sequences = list(given[: len(given) - count]), list(given[len(given) - count :])
    axes = call.attribute("scan_input_axes") or [0] * count
    backwards = call.attribute("scan_input_directions") or [0] * count
    steps = sequences[0].shape[axes[0]]
    if steps > _MOST_STEPS:
        raise Refused("its scan %s has %d steps" % (call.title(), steps), "onnx-loop")
    gathered = None
    for step in range(steps):
        places = [steps - 1 - step if one else step for one in backwards]
        parts = [one.select(a, n) for one, a, n in zip(sequences, axes, places)]
        made = call.scope.inner(body, [*states, *parts])
        states, extra = made[: len(states)], made[len(states) :]
        gathered = [[*a, b] for a, b in zip(gathered or [[] for _ in extra], extra)]
    out_axes = call.attribute("scan_output_axes") or [0] * len(gathered or [])
    return (*states, *[_stacked(call, one, a) for one, a in zip(gathered or [], out_axes)])


def _sequence(call, *tensors):
    return list(tensors)


def _at(call, sequence, _place):
    return sequence[call.ints(1)[0]]


def _inserted(call, sequence, tensor, _place=None):
    places = call.ints(2)
    made = list(sequence)
    made.insert(places[0] if places else len(made), tensor)
    return made


def _erased(call, sequence, _place=None):
    places, made = call.ints(1), list(sequence)
    del made[places[0] if places else -1]
    return made


def _length(call, sequence):
    return torch.tensor(len(sequence))


def _joined(call, sequence):
    axis = call.attribute("axis", 0)
    if call.attribute("new_axis", 0):
        return _stacked(call, sequence, axis)
    if any(one.is_meta for one in sequence):
        sequence = [call.on_meta(one) for one in sequence]
    return torch.cat(sequence, axis)


def _taken_apart(call, x, _split=None):
    axis, sizes = call.attribute("axis", 0), call.ints(1)
    sizes = sizes if sizes and len(sizes) > 1 else (sizes or [1])[0]
    parts = list(call.on_meta(x).split(sizes, axis))
    if _split is None and not call.attribute("keepdims", 1):
        parts = [one.squeeze(axis) for one in parts]
    return parts


OPERATORS = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceConstruct": _sequence,
    "SequenceEmpty": _sequence,
    "SequenceAt": _at,
    "SequenceInsert": _inserted,
    "SequenceErase": _erased,
    "SequenceLength": _length,
    "ConcatFromSequence": _joined,
    "SplitToSequence": _taken_apart,
}
