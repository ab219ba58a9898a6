"""What the worker is told of a model of Flax or Equinox that a user's function returned.

Standard library only. The worker runs the function again, in a Python with jax: shapes of functions
cannot be written down as JSON.
"""


def describe(made, request):
    """Nothing beyond the entry of the request."""
    return {"entry": request["entry"]}
