"""What the script's own lines take in a step, beside its models, backward and the update.

Standard library and torch only; runs in the user's Python. The frame that holds the training loop
is traced line by line; where a library holds the loop, the outermost functions of the user's are.
Time is counted to statements, so that a loop over samples is one figure, at the place where it is
written; what a model, ``backward``, an optimizer or a loader takes in it is taken off.
"""

import ast
import linecache
import os
import sys
import sysconfig
import time

clock, cpu_clock = time.perf_counter_ns, time.thread_time_ns
_LOADERS = ("torch/utils/data", "accelerate/data_loader", "tqdm/", "torchdata/")
_LIBRARY = tuple(
    os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")
)
_HERE = os.path.dirname(os.path.realpath(__file__))
_NUM_TOLD = 12
_NUM_TRIED, _NUM_CALIBRATED = 500, 5


def is_own(file):
    """Whether a file is the user's: neither a library's nor made up."""
    if file.startswith("<"):
        return False
    real = os.path.realpath(file)
    return not real.startswith((*_LIBRARY, _HERE))


def loop_frame(frame):
    """The innermost frame of the user's, from this one outwards, in a loop; where that begins."""
    while frame is not None:
        code = frame.f_code
        if is_own(code.co_filename):
            tree = _tree(code.co_filename)
            loops = [] if tree is None else _loops(tree, code.co_firstlineno, frame.f_lineno)
            if loops:
                return frame, max(one.lineno for one in loops)
        frame = frame.f_back
    return None, 0


class Lines:
    """Times of lines, by function."""

    def __init__(self, torch):
        self.torch = torch
        self.time_ns = {}
        self.cpu_ns = {}
        self.hits, self.calls = {}, {}
        self.elsewhere = {}
        self.away_ns = self.away_cpu_ns = 0
        self.depth = 0
        self.away_since = self.away_cpu_since = 0
        self.loop = None
        self.loop_line = 0
        self.statement_of = {}
        self.num_inside = self.num_called = 0
        self._handles = []
        self._plain_backward = None
        self._last = {}

    def begin(self, frame, loop_line=0):
        """Trace from now on.

        Args:
            frame: That asked the loader for a batch, or holds the loop without one.
            loop_line: Where that loop begins; the line that asked where it is 0.
        """
        modules = self.torch.nn.modules.module
        while frame is not None and any(one in frame.f_code.co_filename for one in _LOADERS):
            frame = frame.f_back
        self._handles = [
            modules.register_module_forward_pre_hook(self._away),
            modules.register_module_forward_hook(self._back, always_call=True),
        ]
        self._plain_backward = plain = self.torch.autograd.backward

        def backward(*args, **kwargs):
            """The backward pass, whose lines are not timed."""
            self._away()
            try:
                return plain(*args, **kwargs)
            finally:
                self._back()

        self.torch.autograd.backward = backward
        self.cost_ns = (cost_of_a_line(), cost_of_a_call())
        if frame is not None and is_own(frame.f_code.co_filename):
            self.loop, self.loop_line = frame, loop_line or frame.f_lineno
            self._last[frame] = self._now(frame.f_lineno)
            sys.settrace(self._called)
            frame.f_trace = self._line
        else:
            sys.settrace(self._call)

    def end(self):
        """Stop, and tell what the statements took, the longest first."""
        sys.settrace(None)
        if self.loop is not None:
            self._close(self.loop, self.loop.f_lineno)
            self.loop.f_trace = None
        for handle in self._handles:
            handle.remove()
        self.torch.autograd.backward = self._plain_backward
        self.loop = None
        return statements(self, *self.cost_ns)

    def settle(self):
        """Forget the first steps, but for where models are called: loops beside that count whole.

        Within a statement the trace then does nothing, so that it costs a short loop little.
        """
        for file, first, line in list(self.elsewhere):
            node = _found(file, first, line, self)[0]
            if node is not None:
                table = self.statement_of.setdefault((file, first), {})
                table.update(dict.fromkeys(range(node.lineno, node.end_lineno + 1), node.lineno))
        self.time_ns, self.cpu_ns, self.hits, self.calls = {}, {}, {}, {}
        self.elsewhere = dict.fromkeys((key for key, gone in self.elsewhere.items() if gone), 0)

    def waits(self, is_begin):
        """A loader is asked or an optimizer steps; or it is done."""
        (self._away if is_begin else self._back)()

    def _away(self, *_args):
        self.depth += 1
        if self.depth == 1:
            self.away_since, self.away_cpu_since = clock(), cpu_clock()

    def _back(self, *_args):
        if self.depth:
            self.depth -= 1
            if self.depth == 0:
                self.away_ns += clock() - self.away_since
                self.away_cpu_ns += cpu_clock() - self.away_cpu_since

    def _called(self, *_args):
        """Each function that is called beside the loop, none of which is traced, comes here."""
        if not self.depth:
            self.num_called += 1

    def _call(self, frame, event, _arg):
        if self.depth or not is_own(frame.f_code.co_filename):
            return None
        at = frame.f_back
        while at is not None:
            if at in self._last:
                return None
            at = at.f_back
        self._last[frame] = self._now(frame.f_lineno)
        return self._line

    def _line(self, frame, event, _arg):
        if event == "line":
            code, line = frame.f_code, frame.f_lineno
            table = self.statement_of.get((code.co_filename, code.co_firstlineno))
            if table is not None:
                line = table.get(line, line)
                last = self._last.get(frame)
                if last is not None and last[2] == line:
                    self.num_inside += 1
                    return self._line
            self._close(frame, line)
        elif event == "return":
            self._close(frame, frame.f_lineno)
            self._last.pop(frame, None)
        return self._line

    def _close(self, frame, line):
        """Count the time since the last line of a frame to that line."""
        began, cpu, before, away, away_cpu = self._last.get(frame) or self._now(line)
        key = (frame.f_code.co_filename, frame.f_code.co_firstlineno, before)
        gone = self.away_ns - away
        spent = clock() - began - gone
        spent_cpu = cpu_clock() - cpu - self.away_cpu_ns + away_cpu
        self.time_ns[key] = self.time_ns.get(key, 0) + spent
        self.cpu_ns[key] = self.cpu_ns.get(key, 0) + spent_cpu
        self.elsewhere[key] = self.elsewhere.get(key, 0) + gone
        self.hits[key] = self.hits.get(key, 0) + self.num_inside
        self.calls[key] = self.calls.get(key, 0) + self.num_called
        self.num_inside = self.num_called = 0
        self._last[frame] = self._now(line)

    def _now(self, line):
        return clock(), cpu_clock(), line, self.away_ns, self.away_cpu_ns


def cost_of_a_line():
    """Nanoseconds that tracing adds to a line, by a loop of nothing with it and without."""

    def loop():
        for _ in range(_NUM_TRIED):
            pass

    plain = _fastest_ns(loop)
    trial, code = Lines(None), loop.__code__
    first = code.co_firstlineno
    lines = range(first, first + 4)
    trial.statement_of[code.co_filename, first] = dict.fromkeys(lines, first)

    def trace(frame, *_args):
        """Trace the lines of the loop alone."""
        if frame.f_code is not code:
            return None
        trial._last[frame] = trial._now(first)
        return trial._line

    sys.settrace(trace)
    traced = _fastest_ns(loop)
    sys.settrace(None)
    return max(0, traced - plain) / (2 * _NUM_TRIED)


def cost_of_a_call():
    """Nanoseconds that tracing adds to a call of a function that is not traced."""

    def nothing():
        pass

    def loop():
        for _ in range(_NUM_TRIED):
            nothing()

    plain = _fastest_ns(loop)
    sys.settrace(Lines(None)._called)
    traced = _fastest_ns(loop)
    sys.settrace(None)
    return max(0, traced - plain) / _NUM_TRIED


def _fastest_ns(loop):
    times = []
    for _ in range(_NUM_CALIBRATED):
        began = cpu_clock()
        loop()
        times.append(cpu_clock() - began)
    return min(times)


def statements(lines, cost_ns, call_ns=0.0):
    """Times of lines counted to the statements of the loop, or of the functions, that hold them.

    Args:
        lines: What was timed.
        cost_ns: What tracing adds to a line.
        call_ns: What it adds to a call.

    Returns:
        Mappings with ``file``, ``line``, ``end``, ``own_ns`` by the clock, ``cpu_ns``, ``away_ns``
        in models, backward and updates, ``text``, ``calls``, ``has_loop`` and ``is_before``:
        whether it stands before the first model call.
    """
    found, elsewhere = {}, lines.elsewhere
    for (file, first, line), spent in lines.time_ns.items():
        node, away, tree = _found(file, first, line, lines)
        begin, end = (line, line) if node is None else (node.lineno, node.end_lineno)
        one = found.setdefault(
            (file, begin),
            {
                "file": os.path.basename(file), "line": begin, "end": end,
                "own_ns": 0, "cpu_ns": 0, "away_ns": 0,
                "text": linecache.getline(file, begin).strip()[:80],
                "calls": sorted(_calls(node, tree)) if node is not None else [],
                "has_loop": node is not None and _has_loop(node, tree),
                "is_before": end < min(away - {lines.loop_line}, default=0),
            },
        )  # fmt: skip
        key = (file, first, line)
        added = cost_ns * lines.hits[key] + call_ns * lines.calls[key]
        one["own_ns"] += max(0.0, spent - added)
        one["cpu_ns"] += max(0.0, lines.cpu_ns[key] - added)
        one["away_ns"] += elsewhere[key]
    told = sorted(found.values(), key=lambda one: -one["own_ns"])
    return told[:_NUM_TOLD]


def _found(file, first, line, lines):
    """The statement that holds a line, the lines of its function that call models, and the tree."""
    at = {n for (f, g, n), gone in lines.elsewhere.items() if (f, g) == (file, first) and gone}
    tree = _tree(file)
    body = _body(tree, first, lines.loop_line) if tree is not None else []
    return _statement(body, line, at), at, tree


_TREES = {}


def _tree(file):
    if file not in _TREES:
        try:
            _TREES[file] = ast.parse("".join(linecache.getlines(file)))
        except (SyntaxError, ValueError):
            _TREES[file] = None
    return _TREES[file]


def _body(tree, first, loop_line):
    """Statements of the innermost loop that asks for batches, or else of the function."""
    loops = _loops(tree, first, loop_line)
    return max(loops, key=lambda n: n.lineno).body if loops else _scope(tree, first).body


def _scope(tree, first):
    """The function that begins at a line, or else the module."""
    return next(
        (n for n in ast.walk(tree) if isinstance(n, _FUNCTIONS) and _first(n) == first), tree
    )


def _loops(tree, first, line):
    """Loops of a function that hold a line."""
    return [
        n
        for n in ast.walk(_scope(tree, first))
        if isinstance(n, (ast.For, ast.While)) and n.lineno <= line <= n.end_lineno
    ]


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _first(node):
    return min([node.lineno, *(one.lineno for one in node.decorator_list)])


def _statement(body, line, away):
    """The statement that holds a line; blocks around a model call are looked into."""
    for node in body:
        if not node.lineno <= line <= node.end_lineno:
            continue
        blocks = [getattr(node, name, None) or [] for name in ("body", "orelse", "finalbody")]
        inner = [one for block in blocks for one in block if isinstance(one, ast.stmt)]
        is_plain = isinstance(node, (ast.For, ast.While))
        has_model = any(node.lineno <= one <= node.end_lineno for one in away)
        if inner and (not is_plain or has_model):
            return _statement(inner, line, away) or node
        return node
    return None


def _helpers(node, tree, seen):
    """The node, and the functions of the same file that it calls."""
    yield node
    functions = {n.name: n for n in ast.walk(tree) if isinstance(n, _FUNCTIONS)}
    for name in _names(node):
        if name in functions and name not in seen and name not in ("forward", "__init__"):
            seen.add(name)
            yield from _helpers(functions[name], tree, seen)


def _names(node):
    for one in ast.walk(node):
        if isinstance(one, ast.Call):
            name = getattr(one.func, "attr", None) or getattr(one.func, "id", None)
            if name:
                yield name


def _calls(node, tree):
    return {name for one in _helpers(node, tree, set()) for name in _names(one)}


_LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)


def _has_loop(node, tree):
    return any(
        isinstance(inner, _LOOPS) for one in _helpers(node, tree, set()) for inner in ast.walk(one)
    )
