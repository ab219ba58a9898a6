"""What JAX itself says of the ten models: parameters of the built model, FLOP of XLA's analysis.

Run in a Python with jax: ``python jax_truth.py BATCH LENGTH`` prints one JSON object.
"""

import inspect
import json
import math
import sys

import jax
import jax_zoo

MODELS = ("NnxMlp", "NnxCnn", "NnxTransformer", "LinenMlp", "LinenResNet", "LinenTransformer",
          "LinenLstm", "LinenGru", "EquinoxMlp", "EquinoxCnn")  # fmt: skip


def truth(name, batch, length):
    """(parameters, FLOP of a forward pass)."""
    workload = getattr(jax_zoo, name)()
    inputs = workload.inputs(*(batch, length)[: len(inspect.signature(workload.inputs).parameters)])
    parameters, forward = _functions(workload.model, inputs)
    count = sum(math.prod(one.shape) for one in jax.tree.leaves(parameters))
    cost = jax.jit(forward).lower(inputs).compile().cost_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    return count, cost["flops"]


def _functions(model, inputs):
    library = type(model).__mro__
    if any(one.__module__.startswith("flax.nnx") for one in library):
        from flax import nnx

        model.eval()
        return nnx.state(model, nnx.Param), model
    if any(one.__module__.startswith("flax.linen") for one in library):
        variables = model.init(jax.random.key(0), inputs)
        return variables["params"], lambda x: model.apply(variables, x)
    import equinox

    return equinox.filter(model, equinox.is_inexact_array), jax.vmap(model)


if __name__ == "__main__":
    batch, length = map(int, sys.argv[1:])
    print(json.dumps({name: truth(name, batch, length) for name in MODELS}))
