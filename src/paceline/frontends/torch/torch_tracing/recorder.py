"""Record what a PyTorch step asks for, op by op, on meta tensors.

Standard library and torch only; runs in the Python that has torch (2.4 or newer).

Every operator that reaches the dispatcher is one row; `stand_ins` replaces the few functions
whose decomposition differs between a CPU and an accelerator.
"""

import bisect
import contextlib
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch_tracing import loops, waits
from torch_tracing.results import RESULTS

FORWARD, LOSS, BACKWARD = 0, 1, 2
_OWNERS = {"parameter": 0, "gradient": 1, "activation": 3, "input": 4, "buffer": 6, "kv_cache": 7}

_MOVES_NOTHING = frozenset(
    "aten::" + name
    for name in (
        "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view",
        "_reshape_alias", "lift_fresh", "set_", "resize_", "is_same_size",
    )
)  # fmt: skip
#: Attributes that shapes do not tell, by operator: positions of integer or boolean arguments.
_ATTRIBUTES = {
    "aten::convolution": (6, 8),
    "aten::_convolution": (6, 8),
    "aten::convolution_backward": (7, 10),
    "aten::_softmax": (1,),
    "aten::_log_softmax": (1,),
    "aten::_softmax_backward_data": (2,),
    "aten::_log_softmax_backward_data": (2,),
    "aten::native_group_norm": (6,),
    "aten::upsample_bilinear2d": (0,),
    "aten::native_group_norm_backward": (8,),
}


#: What makes the gradient of a table.
_TABLE_GRADIENTS = frozenset(
    f"aten::{name}|"
    for name in (
        "embedding_dense_backward", "_embedding_bag_dense_backward", "_embedding_bag_backward",
    )
)  # fmt: skip


class Untraceable(Exception):
    """A tensor whose bytes a trace cannot count."""

    kind = "sparse"


class Recorder(TorchDispatchMode):
    """The rows of one traced pass.

    Attributes:
        values: Values that are known; None where none are followed.
        choices: Answers to conditions on values; None where such conditions are refused.
        keeps_rows: Whether gradients of tables are kept as the rows that were read.
    """

    def __init__(self, values=None, choices=None):
        super().__init__()
        self.values = values
        self.choices = choices
        self.ops = []
        self.name_index = {}
        self.tensor_storage = []
        self.tensor_dtype = []
        self.tensor_ndim = []
        self.dims = []
        self.births = []
        self.deaths = []
        self.owners = []
        self.storage_dtype = []
        self.storage_bytes = []
        self.trainable = []
        self.dtype_index = {}
        self._row_of_dtype = {}
        self.module_index = 0
        self.phase = LOSS
        self.takes_whole_masks = False
        self.keeps_rows = False
        self._is_paused = False
        self._row_of_storage = {}
        self._references = {}
        self._func_info = {}
        self._sequence = [-1]
        self._sequence_module = [0]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self._is_paused:
            result = func(*args, **kwargs)
            self._follow(func, args, kwargs, result)
            return result
        info = self._func_info.get(func)
        if info is None:
            info = self._func_info[func] = _describe(func)
        name, moves_nothing, is_composite, attributes, handler = info
        if is_composite:
            result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if handler is not None:
            result = handler(self, func, args, kwargs)
            if result is not NotImplemented:
                self._follow(func, args, kwargs, result)
                return result
        result = self._called(func, args, kwargs)
        self._follow(func, args, kwargs, result)
        if moves_nothing:
            return result
        outputs = _tensors((result,))
        if outputs:
            inputs = _tensors(args)
            if kwargs:
                inputs += _tensors(kwargs.values())
            if self.keeps_rows and name in _TABLE_GRADIENTS:
                name = "paceline::table_rows_backward|"
            self.record(name, inputs, outputs, [_scalar(args, i) for i in attributes])
            masks = waits.masks_read_back(func._schema.name, args)
            if masks:
                self.record("paceline::to_host|", masks, [], [])
                self.takes_whole_masks = True
        return result

    def _follow(self, func, args, kwargs, result):
        if self.values is not None:
            self.values.follow(func, args, kwargs, result, is_input=self._is_paused)

    def _called(self, func, args, kwargs):
        """The result on meta; of a user's operator that knows no meta, as its CPU kernel says."""
        try:
            return RESULTS.call(func, args, kwargs)
        except NotImplementedError:
            if self.values is None:
                raise
            return self.values.shaped(func, args, kwargs)

    def record(self, name, inputs, outputs, attributes):
        """Append one op, unless recording is paused."""
        if self._is_paused:
            return
        node = torch._C._current_autograd_node()
        phase, module = self.phase, self.module_index
        if node is not None:
            phase, module = BACKWARD, self._module_of(node)
        name = loops.named(name, node)
        index = self.name_index.setdefault(name, len(self.name_index))
        self.ops.append(
            (
                index,
                phase,
                module,
                [self._tensor(t, -1) for t in inputs],
                [self._tensor(t, len(self.ops)) for t in outputs],
                attributes,
            )
        )

    def own(self, tensor, owner, trainable=False):
        """Declare a tensor that exists before the pass."""
        row = self._storage(tensor, -1)
        self.owners[row] = _OWNERS[owner]
        self.trainable[row] = int(trainable)
        return row

    def own_model(self, model):
        """Declare every parameter and buffer of ``model``."""
        for parameter in model.parameters():
            self.own(parameter, "parameter", parameter.requires_grad)
        for buffer in model.buffers():
            self.own(buffer, "buffer")

    def enter_module(self, index):
        """Ops from here on belong to module ``index``."""
        self.module_index = index
        self._sequence.append(torch._C._autograd._get_sequence_nr())
        self._sequence_module.append(index)

    def optimizer_step(self, name, parameters):
        """Record one update of ``parameters``; an empty name means the job's optimizer."""
        updated = [p for p in parameters if p.grad is not None]
        gradients = [p.grad for p in updated]
        for gradient in gradients:
            row = self._storage(gradient, -1)
            if self.owners[row] == _OWNERS["activation"]:
                self.owners[row] = _OWNERS["gradient"]
        if updated:
            self.record("paceline::optimizer|" + name, updated + gradients, updated, [])

    @contextlib.contextmanager
    def replaced_steps(self, optimizers, twins):
        """Inside, ``step`` of each optimizer is recorded as one op on the twins of parameters."""
        for optimizer in optimizers:
            optimizer.step = self.recorded_step(optimizer, twins)
        try:
            yield
        finally:
            for optimizer in optimizers:
                del optimizer.step

    def recorded_step(self, optimizer, twins):
        """A ``step`` of an optimizer that is recorded as one op on the twins of its parameters."""

        def step(closure=None):
            """Record an update in place of making it."""
            result = None if closure is None else closure()
            parameters = [
                twins.get(id(p), p) for group in optimizer.param_groups for p in group["params"]
            ]
            self.optimizer_step(optimizer_name(optimizer), parameters)
            return result

        return step

    @contextlib.contextmanager
    def paused(self):
        """Record nothing inside."""
        self._is_paused, before = True, self._is_paused
        try:
            yield
        finally:
            self._is_paused = before

    def close(self):
        """Forget what is still alive: it outlives the pass."""
        self._references.clear()

    def _module_of(self, node):
        number = node._sequence_nr()
        return self._sequence_module[bisect.bisect_right(self._sequence, number) - 1]

    def _tensor(self, tensor, birth):
        self.tensor_storage.append(self._storage(tensor, birth))
        self.tensor_dtype.append(self._dtype(tensor.dtype))
        shape = tensor.shape
        self.tensor_ndim.append(len(shape))
        self.dims.extend(shape)
        return len(self.tensor_storage) - 1

    def _dtype(self, dtype):
        row = self._row_of_dtype.get(dtype)
        if row is None:
            row = self._row_of_dtype[dtype] = len(self.dtype_index)
            self.dtype_index[str(dtype).replace("torch.", "")] = row
        return row

    def _storage(self, tensor, birth):
        if tensor.layout is not torch.strided:
            raise Untraceable("a tensor of it is sparse")
        storage = tensor.untyped_storage()
        key = storage._cdata
        row = self._row_of_storage.get(key)
        if row is None:
            row = len(self.births)
            self.births.append(birth)
            self.deaths.append(None)
            self.owners.append(_OWNERS["activation"])
            self.trainable.append(0)
            self.storage_dtype.append(self._dtype(tensor.dtype))
            self.storage_bytes.append(storage.nbytes())
            self._row_of_storage[key] = row
            self._references[row] = weakref.ref(storage, self._on_death(row, key))
        return row

    def _on_death(self, row, key):
        def forget(_reference):
            """Note after which op a storage died."""
            if self._row_of_storage.get(key) == row:
                del self._row_of_storage[key]
            self.deaths[row] = len(self.ops) - 1

        return forget

    def topology(self):
        """What must not change with batch or sequence length."""
        return {
            "names": list(self.name_index),
            "dtypes": list(self.dtype_index),
            "element_bytes": [getattr(torch, name).itemsize for name in self.dtype_index],
            "ops": [list(op) for op in self.ops],
            "tensor_storage": self.tensor_storage,
            "tensor_dtype": self.tensor_dtype,
            "tensor_ndim": self.tensor_ndim,
            "birth": self.births,
            "death": [len(self.ops) if d is None else d for d in self.deaths],
            "owner": self.owners,
            "trainable": self.trainable,
            "storage_dtype": self.storage_dtype,
        }

    def numbers(self):
        """What may change with batch or sequence length."""
        return {"dims": self.dims, "bytes": self.storage_bytes}


class ModuleTracker:
    """Tell a recorder which module is running, through global module hooks."""

    def __init__(self, recorder, index_of):
        self._recorder = recorder
        self._index_of = index_of
        self._stack = [(0, LOSS)]

    def __enter__(self):
        from torch.nn.modules import module

        self._handles = [
            module.register_module_forward_pre_hook(self._before),
            module.register_module_forward_hook(self._after, always_call=True),
        ]
        return self

    def __exit__(self, *exception):
        for handle in self._handles:
            handle.remove()

    def _before(self, module, _inputs):
        index = self._index_of.get(id(module), self._stack[-1][0])
        phase = FORWARD if id(module) in self._index_of else self._stack[-1][1]
        self._stack.append((index, phase))
        self._apply()

    def _after(self, _module, _inputs, _output):
        self._stack.pop()
        self._apply()

    def _apply(self):
        index, self._recorder.phase = self._stack[-1]
        self._recorder.enter_module(index)


def optimizer_name(optimizer):
    """An optimizer of PyTorch, by its class and whether it has momentum; of rows, as of tables."""
    name = type(optimizer).__name__.lower().removeprefix("sparse")
    has_momentum = any(group.get("momentum") for group in optimizer.param_groups)
    return name + "-momentum" if name == "sgd" and has_momentum else name


def _describe(func):
    name = func._schema.name
    returns = func._schema.returns
    is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in returns)
    # Some composites (silu_backward) also have a kernel of their own, and then do not decompose.
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    is_composite = has_kernel(func.name(), "CompositeImplicitAutograd") and not has_kernel(
        func.name(), "Meta"
    )
    if torch.Tag.pointwise in func.tags:
        tag = "pointwise"
    elif getattr(torch.Tag, "reduction", None) in func.tags:
        tag = "reduction"
    else:
        tag = ""
    attributes = _ATTRIBUTES.get(name, ())
    moves_nothing = is_view or name in _MOVES_NOTHING
    handler = waits.HANDLERS.get(name)
    return name + "|" + tag, moves_nothing, is_composite, attributes, handler


def _tensors(values):
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _tensors(value)
    return found


def _scalar(args, position):
    value = args[position] if position < len(args) else 0
    if isinstance(value, (list, tuple)):
        return sum(int(bool(v)) << i for i, v in enumerate(value))
    return int(_is_channels_last(value) if isinstance(value, torch.Tensor) else value)


def _is_channels_last(tensor):
    """Whether the strides of four dims are those of channels last, as kernels ask for them."""
    if tensor.dim() != 4 or tensor.is_contiguous():
        return False
    items, channels, rows, columns = tensor.stride()
    return channels == 1 and channels < columns <= rows <= items
