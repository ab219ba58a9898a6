"""What a trace remembers of an operator's results is what the operator would return again."""

import pytest
import torch
from traced import worker

aten = torch.ops.aten


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


def made():
    x, weight = meta(4, 6, 8), meta(8)
    return {
        "layer norm": (aten.native_layer_norm.default, (x, [8], weight, weight, 1e-5), {}),
        "transposed": (aten.add.Tensor, (x.transpose(0, 1), meta(6, 4, 8)), {}),
        "broadcast": (aten.mul.Tensor, (x, weight), {}),
        "comparison": (aten.gt.Scalar, (x, 0.5), {}),
        "dropout": (aten.native_dropout.default, (x, 0.1, True), {}),
        "cast": (aten._to_copy.default, (x,), {"dtype": torch.bfloat16}),
        "some gradients": (
            aten.convolution_backward.default,
            (meta(2, 4, 5, 5), meta(2, 3, 5, 5), meta(4, 3, 3, 3), [4], [1, 1], [1, 1], [1, 1],
             False, [0, 0], 1, [False, True, True]),
            {},
        ),
        "split copies": (aten.split_with_sizes_copy.default, (x, [2, 4], 1), {}),
        "channels last": (
            aten.relu.default, (meta(2, 4, 5, 5).to(memory_format=torch.channels_last),), {},
        ),
    }  # fmt: skip


def described(result):
    tensors = [result] if isinstance(result, torch.Tensor) else list(result)
    return [
        t if t is None else (t.shape, t.stride(), t.dtype, t.untyped_storage().nbytes())
        for t in tensors
    ]


@pytest.mark.parametrize("name", made())
def test_a_remembered_result_looks_like_the_real_one(name):
    func, args, kwargs = made()[name]
    results = worker("torch_tracing.results").Results()
    first, again = (results.call(func, args, kwargs) for _ in range(2))
    assert results._known, "it was not remembered"
    assert described(first) == described(again) == described(func(*args, **kwargs))
    assert type(first) is type(again)


def normed(*shape, dtype=torch.float32, is_training=True):
    weight = meta(shape[1])
    return (meta(*shape, dtype=dtype), *[weight] * 4, is_training, 0.1, 1e-5)


def taught(*shape, mask=(True, True, True)):
    weight = meta(shape[1])
    return (meta(*shape), meta(*shape), *[weight] * 5, True, 1e-5, list(mask))


def odd(*shape):
    """Without gaps but for an extent of one, whose step says nothing."""
    return torch.empty_strided(shape, (1, 7, *[1] * (len(shape) - 2)), device="meta")


#: Of one operator: two whose shapes differ and whose results are alike, and others beside them.
ALIKE = {
    "sum": (aten.add.Tensor, [(meta(4, 6), meta(4, 6)), (meta(2, 3, 5), meta(2, 3, 5))]),
    "sum of two types": (
        aten.add.Tensor,
        [(meta(3, 2), meta(3, 2, dtype=torch.bfloat16)), (meta(4), meta(4, dtype=torch.bfloat16)),
         (meta(3, 2, dtype=torch.bfloat16), meta(3, 2, dtype=torch.bfloat16))],
    ),
    "comparison": (aten.gt.Tensor, [(meta(4), meta(4)), (meta(5, 2), meta(5, 2))]),
    "broadcast": (aten.mul.Tensor, [(meta(4), meta(4)), (meta(4, 1), meta(1, 6))]),
    "transposed": (aten.relu.default, [(meta(4, 6),), (meta(4, 6).t(),), (meta(3, 2),)]),
    "a step of one": (aten.relu.default, [(meta(4, 1),), (odd(4, 1),), (meta(1, 4),)]),
    "nothing": (aten.relu.default, [(meta(4, 6),), (meta(0, 6),)]),
    "whole numbers": (
        aten.add.Scalar,
        [(meta(4, dtype=torch.int64), 1), (meta(5, dtype=torch.int64), 1.5), (meta(6), 1)],
    ),
    "norm": (
        aten.native_batch_norm.default,
        [normed(2, 8, 5, 5), normed(3, 6, 7, 4), normed(2, 1, 5, 5), normed(4, 8),
         normed(2, 8, 5, 5, dtype=torch.bfloat16), normed(2, 8, 5, 5, is_training=False)],
    ),
    "gradients of a norm": (
        aten.native_batch_norm_backward.default,
        [taught(2, 8, 5, 5), taught(3, 6, 7, 4), taught(2, 1, 5, 5),
         taught(2, 8, 5, 5, mask=(True, False, False)),
         taught(2, 8, 5, 5, mask=(False, True, True))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_what_is_remembered_of_one_shape_is_true_of_others(name):
    func, asked = ALIKE[name]
    results = worker("torch_tracing.results").Results()
    for args in [*asked, *asked]:
        assert described(results.call(func, args, {})) == described(func(*args))


@pytest.mark.parametrize("name", ["sum", "comparison", "norm", "gradients of a norm"])
def test_another_shape_is_not_asked_for_again(name):
    func, (one, other, *_) = ALIKE[name]
    results = worker("torch_tracing.results").Results()
    results.call(func, one, {})
    results.call(func, other, {})
    assert len(results._known) == 1


def test_a_remembered_result_is_a_new_tensor():
    results, x = worker("torch_tracing.results").Results(), meta(3, 3)
    made = [results.call(aten.relu.default, (x,), {}) for _ in range(3)]
    assert len({t.untyped_storage()._cdata for t in [*made, x]}) == 4


@pytest.mark.parametrize(
    ("func", "arguments"),
    [
        (aten.view.default, (meta(4, 6), [24])),
        (aten.add_.Tensor, (meta(4), meta(4))),
        (aten.mul.out, (meta(4), meta(4))),
    ],
)
def test_views_and_writes_are_never_remembered(func, arguments):
    results = worker("torch_tracing.results").Results()
    kwargs = {"out": meta(4)} if func is aten.mul.out else {}
    result = results.call(func, arguments, kwargs)
    assert not results._known
    given = {
        t.untyped_storage()._cdata for t in [*arguments, *kwargs.values()] if torch.is_tensor(t)
    }
    assert result.untyped_storage()._cdata in given


def test_other_settings_and_shapes_have_other_results():
    results, x = worker("torch_tracing.results").Results(), meta(4, 6)
    assert results.call(aten.sum.dim_IntList, (x, [0]), {}).shape == (6,)
    assert results.call(aten.sum.dim_IntList, (x, [1]), {}).shape == (4,)
    assert results.call(aten.sum.dim_IntList, (meta(5, 7), [1]), {}).shape == (5,)
    assert results.call(aten.cat.default, ([x, x],), {}).shape == (8, 6)
    assert results.call(aten.cat.default, ([x, x, x],), {}).shape == (12, 6)
    # A number and a truth value are equal in Python, and make other tensors.
    assert results.call(aten.full.default, ([2], 1), {"device": "meta"}).dtype == torch.int64
    assert results.call(aten.full.default, ([2], True), {"device": "meta"}).dtype == torch.bool


def test_a_number_has_the_type_that_is_usual_then():
    results, asked = worker("torch_tracing.results").Results(), ([2], 1.0)
    usual = torch.get_default_dtype()
    try:
        for kind in (torch.float32, torch.bfloat16, torch.float32):
            torch.set_default_dtype(kind)
            assert results.call(aten.full.default, asked, {"device": "meta"}).dtype == kind
    finally:
        torch.set_default_dtype(usual)


def test_what_is_remembered_does_not_grow_without_end(monkeypatch):
    module = worker("torch_tracing.results")
    monkeypatch.setattr(module, "_MOST_KNOWN", 3)
    results = module.Results()
    for extent in range(1, 9):
        made = results.call(aten.full.default, ([extent], 1.0), {"device": "meta"})
        assert made.shape == (extent,)
        assert len(results._known) <= 3


def test_tensors_that_hold_values_are_not_remembered():
    results = worker("torch_tracing.results").Results()
    assert results.call(aten.add.Tensor, (torch.ones(2), torch.ones(2)), {}).tolist() == [2, 2]
    assert not results._known
