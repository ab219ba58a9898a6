"""Marks of a training thread made into rows, one per optimizer step.

Standard library only; runs in the user's Python. The training thread only notes what happens and
when; what that means is worked out here, in the thread that writes: code that runs between steps of
a model finds no cache warm, and each line of it costs ten times what it costs in a loop.
"""

#: Kinds of marks: a batch is asked for; a loader is made; a batch is there; a backward pass begins
#: (with its loss or None); an update begins; it has ended (with the optimizer's number); a loss was
#: read late (with it); what follows is the observer's own; it is over.
ASKED, MADE, CAME, BACKWARD, UPDATE, UPDATED, LOSS, MUTED, HEARD = range(9)


class Rows:
    """What the step that the training thread is in took so far.

    Attributes:
        last_ns: When the thread was last seen to move.
        is_in_backward: Whether that was the beginning of a backward pass.
    """

    def __init__(self):
        self.last_ns = 0
        self._wait_ns = self._forward_ns = self._backward_ns = self._update_ns = 0
        self._was_nested = self._is_muted = False
        self._clear()

    @property
    def is_in_backward(self):
        """Whether the phase that began last is a backward pass."""
        return self._backward_ns != 0

    def _clear(self):
        self._waited = self._forwarded = self._backwarded = 0
        self._num_batches = self._num_backwards = 0
        self._losses = []

    def settle(self, marks, done):
        """Take marks away, and hand each complete row on.

        Args:
            marks: A deque of tuples: the kind, when (of the observer's clock), and what it has.
            done: Called with each row.
        """
        while marks:
            kind, now, what = marks.popleft()
            if kind == LOSS:
                self._losses.append(what)
                continue
            self.last_ns = now
            if kind in (HEARD, MUTED):
                self._is_muted = kind == MUTED
            elif self._is_muted:
                continue
            elif kind == UPDATED:
                self._updated(now, what, done)
            else:
                _TAKEN[kind](self, now, what)

    def _asked(self, now, _what):
        if not self._wait_ns:
            self._made(now, None)

    def _made(self, now, _what):
        self._wait_ns = now
        if self._backward_ns and not self._update_ns:
            self._backwarded += now - self._backward_ns
            self._backward_ns = 0

    def _came(self, now, _what):
        self._forward_ns = now
        if self._wait_ns:
            self._waited += now - self._wait_ns
            self._num_batches += 1
            self._wait_ns = 0

    def _backward(self, now, loss):
        if self._backward_ns:
            self._backwarded += now - self._backward_ns
        elif self._forward_ns:
            self._forwarded += now - self._forward_ns
        self._backward_ns, self._forward_ns, self._wait_ns = now, 0, 0
        self._was_nested = self._update_ns != 0
        self._num_backwards += 1
        if loss is not None:
            self._losses.append(loss)

    def _update(self, now, _what):
        self._update_ns, self._was_nested = now, False
        if self._backward_ns:
            self._backwarded += now - self._backward_ns
            self._backward_ns = 0

    def _updated(self, now, number, done):
        if not self._update_ns:
            return
        update = now - self._update_ns
        self._update_ns = 0
        if self._was_nested:
            # The closure's backward has no end of its own: it is counted up to here.
            self._backwarded += now - self._backward_ns
            self._backward_ns = update = 0
        row = (
            number, now, self._waited, self._forwarded, self._backwarded, update,
            self._num_batches, self._num_backwards, self._losses,
        )  # fmt: skip
        self._clear()
        self._forward_ns = 0
        done(row)


_TAKEN = {
    ASKED: Rows._asked, MADE: Rows._made, CAME: Rows._came, BACKWARD: Rows._backward,
    UPDATE: Rows._update,
}  # fmt: skip


def line_of(row):
    """A row as a line of JSON."""
    losses = ",".join([_number(loss) for loss in row[8]])
    return '["step",%d,%d,%d,%d,%d,%d,%d,%d,[%s]]' % (*row[:8], losses)


def _number(loss):
    value = loss if isinstance(loss, float) else loss.item()
    if value - value == 0.0:
        return repr(value)
    return '"nan"' if value != value else '"inf"'
