"""Primitives of JAX in the terms of the op table: products, convolutions, recurrent scans.

Standard library only.
"""

import math


class Refused(Exception):
    """What cannot be traced; the message is for the user."""

    def __init__(self, message, kind="jax-op"):
        super().__init__(message)
        self.kind = kind


#: Functions of jax.random, which one kernel computes.
RANDOM = frozenset(
    ("_bernoulli", "_uniform", "_normal", "_normal_real", "_truncated_normal", "_randint",
     "_gumbel", "_shuffle", "_categorical", "_split", "_fold_in", "_exponential")
)  # fmt: skip
#: What moves no bytes once XLA has laid a program out.
VIEWS = frozenset(
    ("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "transpose", "stop_gradient", "rev",
     "slice", "split", "bitcast_convert_type", "sharding_constraint", "optimization_barrier",
     "copy_p", "real", "imag", "random_wrap", "random_unwrap", "mesh_cast", "reduce_precision",
     "name", "pvary")
)  # fmt: skip
_REDUCTIONS = frozenset(
    ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or",
     "reduce_xor", "argmax", "argmin", "reduce")
)  # fmt: skip
_NAMES = {
    "convert_element_type": "aten::_to_copy|", "concatenate": "aten::cat|",
    "pad": "aten::constant_pad_nd|", "sort": "aten::sort|", "top_k": "aten::topk|",
    "approx_top_k": "aten::topk|", "cumsum": "aten::cumsum|", "cumprod": "aten::cumprod|",
    "cummax": "aten::cumsum|", "cumlogsumexp": "aten::cumsum|", "iota": "aten::arange|",
    "dynamic_slice": "aten::index_select|", "dynamic_update_slice": "aten::slice_scatter|",
    "scatter": "aten::scatter|", "scatter-mul": "aten::scatter|", "scatter_mul": "aten::scatter|",
    "scatter_min": "aten::scatter|", "scatter_max": "aten::scatter|",
    "reduce_window_sum": "aten::avg_pool2d|", "reduce_window_max": "aten::max_pool2d_with_indices|",
    "reduce_window_min": "aten::max_pool2d_with_indices|", "reduce_window": "aten::avg_pool2d|",
    "select_and_scatter_add": "aten::max_pool2d_with_indices_backward|",
    "select_and_gather_add": "aten::max_pool2d_with_indices|", "fft": "aten::_fft_c2c|",
    "cholesky": "aten::linalg_inv_ex|", "triangular_solve": "aten::linalg_inv_ex|",
    "qr": "aten::linalg_qr|", "svd": "aten::_linalg_svd|", "lu": "aten::linalg_inv_ex|",
    "eigh": "aten::linalg_inv_ex|", "rng_bit_generator": "aten::rand|", "copy": "aten::clone|",
    "threefry2x32": "aten::rand|", "random_bits": "aten::rand|", "random_seed": "aten::rand|",
    "random_fold_in": "aten::rand|", "random_split": "aten::rand|",
}  # fmt: skip
#: Callbacks and kernels whose cost a jaxpr does not tell.
_OPAQUE = frozenset(
    ("pure_callback", "io_callback", "pallas_call", "ffi_call", "custom_call", "triton_kernel_call",
     "tpu_custom_call")
)  # fmt: skip
_GATES = (1, 3, 4)


def name_of(equation, read):
    """The row of the op table that an operation is."""
    name = equation.primitive.name
    if name in _OPAQUE:
        what = equation.params.get("name") or equation.params.get("callback") or name
        raise Refused("its operation `%s` (%s) does not tell what it computes" % (name, what))
    if name in _REDUCTIONS:
        return "jax::%s|reduction" % name
    if name == "gather":
        return "aten::embedding|" if _is_table(read) else "aten::index_select|"
    if name in ("scatter-add", "scatter_add"):
        is_table = len(read) > 2 and len(read[0].shape) == 2
        return "aten::embedding_dense_backward|" if is_table else "aten::index_add|"
    if name in _NAMES:
        return _NAMES[name]
    return "jax::%s|pointwise" % name


def _is_table(read):
    return len(read[0].shape) == 2 and read[0].is_parameter


def product_of(numbers, left, right):
    """(batch, m, n, k) of a general product."""
    (left_sum, right_sum), (left_batch, right_batch) = numbers
    batch = math.prod(left.shape[n] for n in left_batch)
    k = math.prod(left.shape[n] for n in left_sum)
    m = _rest(left.shape, left_sum, left_batch)
    return batch, m, _rest(right.shape, right_sum, right_batch), k


def _rest(shape, *taken):
    used = {n for one in taken for n in one}
    return math.prod(extent for n, extent in enumerate(shape) if n not in used)


def convolution_of(params, read, made, is_backward):
    """(name, values that are read, value that is made, attributes), each in the order of PyTorch.

    In a backward pass a convolution of an activation with a gradient makes the gradient of a
    weight, and one with a parameter that of its input. The rules are those by which JAX transposes
    a convolution: batch and features of three tensors change places.
    """
    numbers = params["dimension_numbers"]
    specs = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    groups = max(params["feature_group_count"], params["batch_group_count"])
    if is_backward and not read[1].is_parameter and not read[0].is_parameter:
        specs = [(spec[1], spec[0], *spec[2:]) for spec in specs]
        source, gradient, weight = map(_ordered, (*read[:2], made), specs)
        return "aten::convolution_backward|", [gradient, source, source], weight, [0, 2]
    source, weight, result = map(_ordered, (*read[:2], made), specs)
    exchanged = (weight.shape[1] * groups, weight.shape[0] // groups, *weight.shape[2:])
    if is_backward:
        kept = weight.seen(exchanged)
        return "aten::convolution_backward|", [source, kept, kept], result, [0, 1]
    if any(one > 1 for one in params["lhs_dilation"]):
        return "aten::convolution|", [source, weight.seen(exchanged)], result, [1, groups]
    return "aten::convolution|", [source, weight], result, [0, groups]


def _ordered(value, spec):
    return value.seen([value.shape[n] for n in spec])


def recurrent_of(equation, read, is_backward, known):
    """(attributes, data) of a scan that is a recurrent layer; None for another.

    Its products are those of a cell: of one step's features and of the state, with as many columns
    as the cell has gates. The backward of a known layer multiplies exactly twice as much.
    """
    params = equation.params
    body = params["jaxpr"].jaxpr
    found = _products(body)
    if found is None or not found:
        return None
    total, length = sum(b * m * n * k for b, m, n, k in found), params["length"]
    if is_backward:
        return _backward_of(total, length, read, known)
    first = params["num_consts"] + params["num_carry"]
    states = [one.aval for one in body.invars[params["num_consts"] : first] if one.aval.ndim == 2]
    sequences = [one for one in read[first:] if len(one.shape) == 3]
    if not states or not sequences:
        return None
    batch, hidden = states[0].shape
    data = sequences[0]
    width = data.shape[-1]
    for gates in _GATES:
        if total == batch * gates * hidden * (width + hidden) and data.shape[1] == batch:
            return [gates, 1, 1, hidden], data
    return None


def _backward_of(total, length, read, known):
    for steps, attributes, data in known:
        gates, _, _, hidden = attributes
        batch, width = data.shape[1:]
        if steps == length and total == 2 * batch * gates * hidden * (width + hidden):
            like = [one for one in read if one.shape == data.shape]
            return attributes, like[0] if like else data
    return None


def _products(jaxpr):
    """Sizes of all products of a body; None where it has loops or convolutions."""
    found = []
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name in ("scan", "while", "cond", "conv_general_dilated"):
            return None
        if name == "dot_general":
            shapes = [one.aval for one in equation.invars[:2]]
            found.append(product_of(equation.params["dimension_numbers"], *shapes))
        for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
            inner = equation.params.get(key)
            if inner is not None:
                more = _products(getattr(inner, "jaxpr", inner))
                if more is None:
                    return None
                found += more
    return found
