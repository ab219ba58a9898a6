"""Images per core-second of ``loop.feed`` and of what people use, by turns on the same files.

Usage: python benchmarks/feed.py peers [ROUNDS] [--python PYTHON]    beside other loaders
       python benchmarks/feed.py overlap                             beside a device that waits
       python benchmarks/feed.py threads                             threads chosen, and by hand
       python benchmarks/feed.py tokens                              token windows beside NumPy
       python benchmarks/feed.py infer                               all of ``infer``, its parts

Every loader makes the same batches: the middle square (224/256 of the shorter side) of 384 JPEGs
of 500 x 375 pixels, resized to 224 x 224, uint8. All of them stay alive and are asked by turns, so
that each meets the same neighbours on a crowded machine; what counts is the CPU time of the process
and its workers. Loaders that are not installed in PYTHON are said and left out.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
SIZE, BATCH, CORES, NUM_IMAGES = 224, 32, 2, 384
FRACTION = 224 / 256
_DRAINED, _COUNTED = 12, 24
Batches = Iterator[Any]


def files(root: Path) -> list[Path]:
    """The JPEGs in a folder, made if they are not there."""
    folder = root / "folder" / "all"
    if not folder.is_dir():
        from input_pipeline import image
        from PIL import Image

        folder.mkdir(parents=True)
        for number in range(NUM_IMAGES):
            Image.fromarray(image(500, 375, number % 96)).save(
                folder / f"{number:05d}.jpg", quality=97
            )
    return sorted(folder.glob("*.jpg"))


def by_pillow(data: bytes | Path) -> np.ndarray:
    """torchvision's recipe, ``Resize(256), CenterCrop(224), PILToTensor``, as it calls Pillow."""
    from PIL import Image

    with Image.open(data if isinstance(data, Path) else io.BytesIO(data)) as file:
        image = file.convert("RGB")
    width, height = image.size
    scale = 256 / min(width, height)
    image = image.resize((round(width * scale), round(height * scale)), Image.Resampling.BILINEAR)
    left, top = (round((side - SIZE) / 2) for side in image.size)
    return np.array(image.crop((left, top, left + SIZE, top + SIZE)))


def _forever(make: Callable[[], Any]) -> Batches:
    while True:
        yield from make()


def _loader(dataset: Any, **options: Any) -> Batches:
    from torch.utils.data import DataLoader

    return _forever(
        lambda: DataLoader(dataset, BATCH, num_workers=CORES, persistent_workers=False, **options)
    )


class _Files:
    """A map-style data set of the files."""

    def __init__(self, paths: list[Path], read: Callable[[Path], np.ndarray]) -> None:
        self.paths, self.read = paths * 400, read

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.read(self.paths[index])


def _by_ours(path: Path) -> np.ndarray:
    from paceline.loop.decode import Recipe, decode

    out = np.empty((SIZE, SIZE, 3), np.uint8)
    decode(path.read_bytes(), Recipe(SIZE, FRACTION, False, False), out)
    return out


def _by_simplejpeg(path: Path) -> Any:
    """The same libraries as a user calls them."""
    import simplejpeg
    import torch
    from torch.nn.functional import interpolate

    pixels = simplejpeg.decode_jpeg(path.read_bytes(), "RGB")
    height, width = pixels.shape[:2]
    side = round(min(height, width) * FRACTION)
    top, left = (height - side) // 2, (width - side) // 2
    square = torch.from_numpy(pixels[top : top + side, left : left + side])
    return interpolate(
        square.permute(2, 0, 1)[None], (SIZE, SIZE), mode="bilinear", antialias=True
    )[0]


def _feed(root: Path, **options: Any) -> Batches:
    from paceline import loop

    files(root)
    fed = loop.feed(
        str(root / "folder"), BATCH, crop=FRACTION, threads=CORES, say=lambda _: None, **options
    )
    return _forever(lambda: fed)


def ours(root: Path) -> Batches:
    return _feed(root)


def ours_scaled(root: Path) -> Batches:
    return _feed(root, is_scaled=True)


def dataloader_same_decoder(root: Path) -> Batches:
    return _loader(_Files(files(root), _by_ours), shuffle=True)


def dataloader_simplejpeg(root: Path) -> Batches:
    return _loader(_Files(files(root), _by_simplejpeg), shuffle=True)


def torchvision_recipe(root: Path) -> Batches:
    return _loader(_Files(files(root), by_pillow), shuffle=True)


def hugging_face(root: Path) -> Batches:
    import datasets

    rows = datasets.Dataset.from_dict({"image": [str(p) for p in files(root)] * 8})
    rows = rows.cast_column("image", datasets.Image(decode=False))
    rows.set_transform(
        lambda batch: {"image": [by_pillow(Path(i["path"])) for i in batch["image"]]}
    )
    return _loader(rows, shuffle=True)


def webdataset(root: Path) -> Batches:
    import webdataset as wds

    path = root / "shard-{}.tar"
    for number in range(CORES):
        with tarfile.open(str(path).format(number), "w") as shard:
            for file in files(root)[number::CORES] * 8:
                data = file.read_bytes()
                member = tarfile.TarInfo(f"{time.perf_counter_ns()}.jpg")
                member.size = len(data)
                shard.addfile(member, io.BytesIO(data))
    urls = str(path).format(f"{{0..{CORES - 1}}}")

    def make() -> Any:
        rows = wds.WebDataset(urls, shardshuffle=False, empty_check=False).shuffle(100)
        rows = rows.map(lambda row: (by_pillow(row["jpg"]),)).batched(BATCH)
        return wds.WebLoader(rows, batch_size=None, num_workers=CORES)

    return _forever(make)


def tf_data(root: Path) -> Batches:
    import tensorflow as tf

    def read(path: Any) -> Any:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3, dct_method="INTEGER_ACCURATE")
        side = tf.cast(
            tf.round(tf.cast(tf.reduce_min(tf.shape(image)[:2]), tf.float32) * FRACTION), tf.int32
        )
        top, left = (tf.shape(image)[0] - side) // 2, (tf.shape(image)[1] - side) // 2
        image = tf.image.crop_to_bounding_box(image, top, left, side, side)
        image = tf.image.resize(image, (SIZE, SIZE), antialias=True)
        return tf.cast(tf.round(tf.clip_by_value(image, 0, 255)), tf.uint8)

    rows = tf.data.Dataset.from_tensor_slices([str(p) for p in files(root)] * 8)
    rows = rows.shuffle(NUM_IMAGES).map(read, num_parallel_calls=tf.data.AUTOTUNE)
    rows = rows.batch(BATCH).prefetch(tf.data.AUTOTUNE)
    return _forever(lambda: rows.as_numpy_iterator())


def grain(root: Path) -> Batches:
    import grain.python as pygrain

    paths = files(root) * 8
    # By default a worker makes 500 batches ahead, which no window here would outlast.
    ahead = pygrain.ReadOptions(num_threads=2, prefetch_buffer_size=2)

    def make() -> Any:
        rows = pygrain.MapDataset.source(paths).shuffle(seed=0).map(by_pillow).batch(BATCH)
        workers = pygrain.MultiprocessingOptions(num_workers=CORES)
        return rows.to_iter_dataset(ahead).mp_prefetch(workers)

    return _forever(make)


def mosaic_streaming(root: Path) -> Batches:
    from streaming import MDSWriter, StreamingDataset
    from torch.utils.data import DataLoader

    folder = root / "mds"
    if not folder.is_dir():
        with MDSWriter(out=str(folder), columns={"image": "bytes"}) as out:
            for file in files(root) * 8:
                out.write({"image": file.read_bytes()})

    class Rows(StreamingDataset):
        def __getitem__(self, index: int) -> Any:
            return by_pillow(super().__getitem__(index)["image"])

    rows = Rows(local=str(folder), batch_size=BATCH, shuffle=True)
    return _forever(lambda: DataLoader(rows, BATCH, num_workers=CORES))


def spdl(root: Path) -> Batches:
    import spdl.io
    from spdl.pipeline import PipelineBuilder

    def read(path: str) -> Any:
        return spdl.io.to_numpy(
            spdl.io.convert_frames(
                spdl.io.decode_packets(
                    spdl.io.demux_image(path),
                    filter_desc="crop=min(iw\\,ih)*0.875:min(iw\\,ih)*0.875,"
                    f"scale={SIZE}:{SIZE}:flags=bilinear,format=rgb24",
                )
            )
        )

    paths = [str(p) for p in files(root)] * 8

    def make() -> Any:
        built = (
            PipelineBuilder().add_source(paths).pipe(read, concurrency=CORES)
            .aggregate(BATCH).pipe(np.stack).add_sink(4).build(num_threads=CORES)
        )  # fmt: skip
        with built.auto_stop():
            yield from built

    return _forever(make)


LOADERS = {
    "loop.feed": ours,
    "loop.feed, scaled": ours_scaled,
    "DataLoader, same decoder": dataloader_same_decoder,
    "DataLoader, simplejpeg": dataloader_simplejpeg,
    "torchvision's recipe": torchvision_recipe,
    "Hugging Face datasets": hugging_face,
    "WebDataset": webdataset,
    "tf.data": tf_data,
    "grain": grain,
    "MosaicML streaming": mosaic_streaming,
    "SPDL": spdl,
}


def cpu_s() -> float:
    """CPU time of this process and of those below it that live."""
    import psutil

    me = psutil.Process()
    times = [p.cpu_times() for p in (me, *me.children(recursive=True))]
    ended = me.cpu_times()
    return sum(t.user + t.system for t in times) + ended.children_user + ended.children_system


def _as_array(batch: Any) -> np.ndarray:
    """The images of a batch, whatever holds them."""
    if isinstance(batch, dict):
        batch = batch["image"]
    if isinstance(batch, (tuple, list)):
        batch = batch[0]
    found = np.asarray(batch)
    return found.transpose(0, 2, 3, 1) if found.shape[1] == 3 else found


def answer(name: str, root: Path) -> None:
    """A loader in a process of its own: one window for each line that comes in."""
    batches = LOADERS[name](root)
    first = _as_array(next(batches))
    assert first.shape[1:] == (SIZE, SIZE, 3), first.shape
    print(json.dumps({"mean": float(first.mean())}), flush=True)
    for _ in sys.stdin:
        for _ in range(_DRAINED):
            next(batches)
        began, began_cpu, images = time.perf_counter(), cpu_s(), 0
        for _ in range(_COUNTED):
            images += len(_as_array(next(batches)))
        spent = cpu_s() - began_cpu
        row = {"per_core_s": images / spent, "per_s": images / (time.perf_counter() - began)}
        print(json.dumps(row), flush=True)


def start(name: str, root: Path, python: str) -> subprocess.Popen[str] | None:
    """The process of a loader; None, and why, if it does not run."""
    process = subprocess.Popen(
        [python, "-W", "ignore", __file__, "answer", name, str(root)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    if process.stdout.readline().startswith("{"):
        return process
    why = (process.communicate()[1].strip().splitlines() or ["no answer"])[-1]
    print(f"{name}: does not run here: {why[:150]}", flush=True)
    return None


def _window(process: subprocess.Popen[str]) -> dict[str, float]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    return dict(json.loads(process.stdout.readline()))


def peers(num_rounds: int, python: str, root: Path) -> None:
    """Print the table: medians over the rounds, and ratios within each round."""
    files(root)
    started = {name: start(name, root, python) for name in LOADERS}
    running = {name: process for name, process in started.items() if process is not None}
    print(f"{len(running)} loaders run here", flush=True)
    rows: dict[str, list[float]] = {name: [] for name in running}
    for _ in range(num_rounds):
        for name, process in running.items():
            rows[name].append(_window(process)["per_core_s"])
    for process in running.values():
        process.kill()
    print(f"{num_rounds} rounds of {_COUNTED * BATCH} images")
    for name, found in rows.items():
        ratios = [mine / theirs for mine, theirs in zip(rows["loop.feed"], found, strict=True)]
        spread = f"{min(found):.0f}-{max(found):.0f}"
        told = (statistics.median(found), spread, statistics.median(ratios))
        print("| {} | {:.0f} | {} | {:.2f} |".format(name, *told))


def first_in_line(is_asleep: bool) -> None:
    """Ahead of other programs where that is allowed: in real time what sleeps, else by weight."""
    try:
        if is_asleep:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        else:
            if os.getsid(0) != os.getpid():
                os.setsid()  # A group of its own, whose weight among the others is raised.
            Path("/proc/self/autogroup").write_text("-20")
    except OSError as error:
        print(f"beside other programs: {error.strerror}")


class Late:
    """A reader whose samples come from storage that takes a while."""

    def __init__(self, reader: Any, wait_s: float) -> None:
        self.reader, self.wait_s = reader, wait_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reader, name)

    def __len__(self) -> int:
        return 10**6

    def read(self, index: int) -> Any:
        if self.wait_s:
            time.sleep(self.wait_s)
        return self.reader.read(index % len(self.reader))

    def name_of(self, index: int) -> str:
        return str(index)


def stored(root: Path, suffix: str, width: int, height: int, is_tar: bool = False) -> Any:
    """A reader of pictures, made if they are not there."""
    from input_pipeline import image
    from PIL import Image

    from paceline.loop.readers import open_reader

    folder = root / f"{suffix}-{width}" / "all"
    if not folder.is_dir():
        folder.mkdir(parents=True)
        for number in range(96):
            Image.fromarray(image(width, height, number)).save(
                folder / f"{number:05d}.{suffix}", **({"quality": 90} if suffix == "jpg" else {})
            )
    if not is_tar:
        return open_reader(str(folder.parent))
    shard = root / f"{suffix}-{width}.tar"
    with tarfile.open(shard, "w") as file:
        for one in sorted(folder.iterdir()):
            file.add(one, one.name)
    return open_reader(str(shard))


def threads() -> None:
    """Rate with the threads that were chosen, against the best by hand and the expected one.

    The median of a number's windows counts: run it on a calm machine.
    """
    first_in_line(is_asleep=False)
    root, shares, errors = Path(os.environ["FEED_DATA"]), [], []
    told = "| {} | {:g} | {} | {} | {:.2f} | {:.0f} | {:.0f} | {:+.0%} |"
    print("| files | storage, ms | chosen | best by hand | chosen / best | expected /s"
          " | measured /s | error |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
    for suffix, width, height, is_tar, late_s in (
        ("jpg", 500, 375, False, 0.004), ("jpg", 256, 256, False, 0.016),
        ("jpg", 1024, 768, False, 0.03), ("png", 256, 256, False, 0.008),
        ("jpg", 500, 375, True, 0.002),
    ):  # fmt: skip
        pictures = stored(root, suffix, width, height, is_tar)
        for wait_s in (0.0, late_s):
            found = _by_hand(Late(pictures, wait_s))
            shares.append(found[2])
            errors.append(found[3] / found[4] - 1)
            name = f"{suffix} {width}x{height}{', tar' * is_tar}"
            print(told.format(name, 1e3 * wait_s, *found, errors[-1]), flush=True)
    sizes = [abs(error) for error in errors]
    print(f"least share {min(shares):.2f}; expected rate: median {statistics.median(sizes):.1%},"
          f" worst {max(sizes):.1%}")  # fmt: skip


def _by_hand(reader: Late) -> tuple[int, int, float, float, float]:
    """Threads chosen, the best number, its share of the rate; rates expected and measured."""
    chosen, expected = _alone(reader, lambda: _chosen(reader))
    waiting = (6, 8, 12, 16, 24, 32, 64, 96, 128)
    tried = sorted({chosen, *(waiting if reader.wait_s else (1, 2, 3, 4, 6))})
    rates: dict[int, list[float]] = {number: [] for number in tried}
    window_s = 0.2 if reader.wait_s else 0.4
    for turn in range(5):
        for number in tried[:: 1 if turn % 2 else -1]:
            rates[number].append(_alone(reader, partial(_rate, reader, number, window_s)))
    found = {number: statistics.median(windows) for number, windows in rates.items()}
    best = max(found, key=lambda number: found[number])
    return chosen, best, found[chosen] / found[best], expected, found[chosen]


def _alone(reader: Late, function: Callable[[], Any]) -> Any:
    """Its answer; in real time where samples wait, as they would wake up late beside others."""
    if not reader.wait_s:
        return function()
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        return function()
    try:
        return function()
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _plain_feed(reader: Any, num_threads: int | None) -> Any:
    from paceline import loop

    return loop.feed(reader, 16, crop=FRACTION, threads=num_threads, say=lambda _: None)


def _chosen(reader: Any) -> tuple[int, float]:
    """Threads that the feed settles on, and the samples per second that it expects of them."""
    fed, end = _plain_feed(reader, None), time.perf_counter() + 8
    for _ in fed:
        if fed.choice is not None or time.perf_counter() > end:
            break
    fed.close()
    assert fed.choice is not None, "not settled in eight seconds"
    return fed.choice.num_threads, fed.choice.expected_per_s


def _rate(reader: Any, number: int, seconds: float = 0.2) -> float:
    """Samples per second with so many threads."""
    fed = _plain_feed(reader, number)
    batches = iter(fed)
    for _ in range(6):
        next(batches)
    start, before = time.perf_counter(), fed.engine.num_filled
    while time.perf_counter() - start < seconds:
        next(batches)
    rate = (fed.engine.num_filled - before) / (time.perf_counter() - start)
    fed.close()
    return rate


def tokens(num_rounds: int = 9) -> None:
    """Token windows per core-second against a loop over a NumPy memmap, by turns."""
    from paceline import loop
    from paceline.loop import order

    path, window, batch, count = Path(os.environ["FEED_DATA"]) / "t.bin", 1024, 64, 100
    np.arange(20_000_000, dtype=np.uint16).tofile(path)
    fed = loop.feed(str(path), batch, window=window, dtype="uint16", threads=1, say=lambda _: None)
    ratios = []
    for number in range(num_rounds):
        fed.set_epoch(number)
        batches = iter(fed)
        next(batches)
        start = time.process_time()
        for _ in range(count):
            next(batches)
        ours_s = time.process_time() - start
        batches.close()
        mapped = np.memmap(path, np.uint16, mode="r")
        rows = order.samples_at(fed._epoch(), 0, batch * count)
        start = time.process_time()
        for first in range(0, len(rows), batch):
            made = [mapped[i * window : (i + 1) * window + 1] for i in rows[first : first + batch]]
            whole = np.stack(made).astype(np.int64)
            assert whole[:, :-1].shape == whole[:, 1:].shape
        ratios.append((time.process_time() - start) / ours_s)
    middle = statistics.median(ratios)
    print(f"token windows: {middle:.2f} x NumPy ({min(ratios):.2f}-{max(ratios):.2f})")


def main(words: list[str]) -> None:
    root = Path(os.environ.setdefault("FEED_DATA", tempfile.mkdtemp()))
    if words[0] == "answer":
        answer(words[1], Path(words[2]))
    elif words[0] == "peers":
        python = words[words.index("--python") + 1] if "--python" in words else sys.executable
        peers(int(words[1]) if words[1:] and words[1].isdigit() else 5, python, root)
    else:
        files(root)
        import feed_overlap

        beside = {"overlap": feed_overlap.overlap, "infer": feed_overlap.infer}
        {"threads": threads, "tokens": tokens, **beside}[words[0]]()


if __name__ == "__main__":
    main(sys.argv[1:])
