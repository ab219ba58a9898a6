"""Write down the models of ``keras.applications``: their layers, and what Keras counts of them.

Run in a Python that has Keras 3 and torch, with ``KERAS_BACKEND=torch KERAS_TORCH_DEVICE=meta``, so
that no weights are made: ``python -m facts.keras_models`` in ``tools``. It writes

- ``src/paceline/frontends/keras/applications.json.xz``, the settings of every model without what
  changes no shape (initializers, names of classes already known), with the release and the date;
- ``tests/unit/model/data/keras_applications.csv``: parameters by ``count_params()``, those that are
  trained, and forward FLOP by PyTorch's ``FlopCounterMode`` on Keras's own forward pass.
"""

from __future__ import annotations

import csv
import datetime
import json
import lzma
import math
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LAYERS = ROOT / "src/paceline/frontends/keras/applications.json.xz"
COUNTS = ROOT / "tests/unit/model/data/keras_applications.csv"
#: Side of the pictures of a model that leaves it open.
_SIDE = 224
_ENDINGS = ("_initializer", "_regularizer", "_constraint")
_UNUSED = frozenset(
    {"build_config", "compile_config", "dtype", "epsilon", "momentum", "optional",
     "quantization_config", "ragged", "registered_name", "seed", "sparse", "synchronized"}
)  # fmt: skip


def slimmed(value: Any) -> Any:
    """Settings without what changes no shape.

    >>> slimmed({"units": 3, "seed": None, "bias_initializer": {}})
    {'units': 3}
    """
    if isinstance(value, list):
        return [slimmed(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.get("class_name") == "__keras_tensor__":
        history = {"keras_history": value["config"]["keras_history"]}
        return {"class_name": "__keras_tensor__", "config": history}
    return {
        key: slimmed(one)
        for key, one in value.items()
        if (key not in _UNUSED or _is_whole(key, one)) and not key.endswith(_ENDINGS)
    }


def _is_whole(key: str, value: Any) -> bool:
    """Whether a setting says that an input holds whole numbers."""
    return key == "dtype" and isinstance(value, str) and not value.startswith("float")


def counted(keras: Any, name: str) -> tuple[Any, list[object]]:
    """(settings, row of counts) of one application."""
    model = getattr(keras.applications, name)(weights=None)
    side = model.input_shape[1] or _SIDE
    flop = _forward_flop(model, side) if keras.backend.backend() == "torch" else ""
    trained = sum(math.prod(weight.shape) for weight in model.trainable_weights)
    row = [name, side, model.count_params(), trained, flop]
    return slimmed(json.loads(model.to_json())), row


def _forward_flop(model: Any, side: int) -> int:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    pictures = torch.empty((2, side, side, model.input_shape[-1]), device="meta")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(pictures, training=False)
    return int(counter.get_total_flops()) // 2


def main() -> None:
    """Write both files; what stands in them already is kept.

    A model that the backend cannot build is left to a second run with another one, which has no
    count of FLOP.
    """
    import keras

    settings, rows = kept()
    for name in sorted(name for name in dir(keras.applications) if name[0].isupper()):
        if name not in settings:
            try:
                settings[name], rows[name] = counted(keras, name)
            except ValueError as error:
                print(name, str(error).splitlines()[0])
                continue
            print(*rows[name], flush=True)
    write(settings, rows, keras.__version__)


def kept() -> tuple[dict[str, Any], dict[str, list[object]]]:
    """(settings, rows) by name, as they were written."""
    if not LAYERS.exists():
        return {}, {}
    with COUNTS.open(encoding="utf-8", newline="") as file:
        rows: dict[str, list[object]] = {row[0]: list(row) for row in list(csv.reader(file))[1:]}
    return json.loads(lzma.decompress(LAYERS.read_bytes()))["models"], rows


def write(settings: dict[str, Any], rows: dict[str, list[object]], version: str) -> None:
    """Both files."""
    told = {
        "source": f"keras.applications of Keras {version} (Apache-2.0), weights=None",
        "read_on": datetime.date.today().isoformat(),
        "models": dict(sorted(settings.items())),
    }
    text = json.dumps(told, separators=(",", ":")).encode()
    LAYERS.write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
    with COUNTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", "side", "parameters", "trained", "forward_flop"])
        writer.writerows(rows[name] for name in sorted(rows))


if __name__ == "__main__":
    main()
