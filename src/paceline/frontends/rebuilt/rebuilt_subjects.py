"""A rebuilt model as what the recorder takes: its inputs, its loss, its optimizer.

Standard library and torch only.
"""

from rebuilt_program import FREE_BATCH, FREE_LENGTH, sized
from torch_entries.request_errors import RequestError
from torch_entries.subjects import Subject


class RebuiltSubject(Subject):
    """A model rebuilt from a list of operators.

    Args:
        program: What was translated.
        outputs: Values that the model gives: one, or a list.
        loss: Function of (outputs, batch) that gives the number to differentiate; without one,
            cross-entropy as of other models.
        optimizer: Name as in ``optimizers.csv``; empty where the job's is meant.
        side: Of square pictures that were asked for, where the model takes them.
    """

    def __init__(self, program, outputs, *, loss=None, optimizer="", side=None):
        if not program.inputs:
            raise RequestError("bad-model", "it has no input")
        if isinstance(outputs, (list, tuple)) and not outputs:
            raise RequestError("bad-model", "it has no output")
        self._wanted = [(shape, dtype) for _, shape, dtype in program.inputs]
        shape, dtype = self._wanted[0]
        has_seq = any(FREE_LENGTH in shape for shape, _ in self._wanted)
        kind = _kind(shape, dtype, outputs, has_seq)
        is_plain = len(self._wanted) == 1 and not has_seq and dtype.is_floating_point
        item = tuple(shape[1:]) if is_plain else None
        super().__init__(program.model(outputs), kind, item, has_seq=has_seq)
        self.side, self.optimizer, self._own_loss = side, optimizer, loss
        self.described = " and ".join(_described(*one) for one in self._wanted)

    def inputs(self, batch, seq):
        """One batch, in the order of the model's inputs."""
        return tuple(sized(shape, dtype, batch, seq) for shape, dtype in self._wanted)

    def loss(self, output, inputs):
        """The loss that the model was compiled with, or the usual one."""
        if self._own_loss is None:
            return super().loss(output, inputs)
        return self._own_loss(output, inputs[0].shape[0])


def _kind(shape, dtype, outputs, has_seq):
    if not dtype.is_floating_point:
        first = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
        return "language" if has_seq and len(first.shape) == 3 else "text"
    return "image" if len(shape) == 4 and not has_seq else "features"


def _described(shape, dtype):
    """One item of an input, in words.

    >>> _described((FREE_BATCH, FREE_LENGTH, 10), None)
    'steps of 10'
    """
    if FREE_LENGTH in shape:
        rest = [str(n) for n in shape if n not in (FREE_BATCH, FREE_LENGTH)]
        return "steps of %s" % "×".join(rest) if rest else "tokens"
    item = "×".join(str(n) for n in shape[1:])
    if dtype.is_floating_point:
        return item or "numbers"
    return "%s tokens" % item if item else "whole numbers"
