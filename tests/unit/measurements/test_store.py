"""The store against kills, full disks, cut-off files and company."""

import random
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import pytest

from paceline.errors import InvalidInputError
from paceline.measurements.index import find_records, refresh_index
from paceline.measurements.records import Record
from paceline.measurements.store import Store, read_segment, segment_paths

RECORD = Record(
    kind="step",
    outcome="ok",
    recorded_at="2026-11-20T12:00:00+00:00",
    source="test",
    workload="resnet18",
    device_name="A100 SXM4 80GB",
    samples_s=(0.1, 0.2, 0.3),
)

WRITER = textwrap.dedent(
    """
    import resource, signal, sys
    from dataclasses import replace
    from pathlib import Path
    from paceline.errors import PacelineError
    from paceline.measurements.records import Record
    from paceline.measurements.store import Store
    folder, count, limit = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if limit:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    record = Record(kind="step", outcome="ok", recorded_at="2026-11-20", source="test",
                    workload="w", device_name="d", samples_s=tuple(0.1 * i for i in range(50)))
    with Store(folder) as store:
        for number in range(count):
            try:
                store.append(replace(record, batch_per_device=number))
            except PacelineError as error:
                print("refused", error, flush=True)
                break
            print(number, flush=True)
    """
)


def start_writer(folder, count=100_000, limit=0):
    command = [sys.executable, "-c", WRITER, str(folder), str(count), str(limit)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_what_is_written_is_read(tmp_path):
    with Store(tmp_path) as store:
        store.append(RECORD)
        store.append(replace(RECORD, workload="alexnet"))
        assert [r.workload for r in store.read().records] == ["resnet18", "alexnet"]
    assert store.read().records[0] == RECORD


def test_reading_makes_no_folder(tmp_path):
    assert Store(tmp_path / "none").read().records == ()
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_writer_loses_at_most_the_line_in_flight(tmp_path, seed):
    writer = start_writer(tmp_path)
    assert writer.stdout is not None
    writer.stdout.readline()
    time.sleep(random.Random(seed).uniform(0.0, 0.1))
    writer.send_signal(signal.SIGKILL)
    acknowledged = [0] + [int(line) for line in writer.stdout.read().split()]
    writer.wait()
    writer.stdout.close()
    kept = [r.batch_per_device for r in Store(tmp_path).read().records]
    assert kept[: len(acknowledged)] == acknowledged
    assert len(kept) <= len(acknowledged) + 1


def test_two_writers_on_one_folder_lose_nothing(tmp_path):
    writers = [start_writer(tmp_path, count=40) for _ in range(2)]
    for writer in writers:
        writer.communicate(timeout=60)
    contents = Store(tmp_path).read()
    assert len(segment_paths(tmp_path)) == 2
    assert sorted(r.batch_per_device for r in contents.records) == sorted([*range(40)] * 2)
    assert contents.num_damaged == 0


def test_a_full_disk_is_said_and_what_was_written_stays(tmp_path):
    writer = start_writer(tmp_path, limit=20_000)
    out, _ = writer.communicate(timeout=60)
    *numbers, refusal = out.splitlines()
    assert refusal.startswith("refused a measurement could not be written")
    contents = Store(tmp_path).read()
    assert [r.batch_per_device for r in contents.records] == [int(n) for n in numbers]
    assert contents.num_damaged == 0


def test_a_segment_cut_anywhere_keeps_every_whole_line(tmp_path):
    with Store(tmp_path / "whole") as store:
        for number in range(5):
            store.append(replace(RECORD, batch_per_device=number))
    data = segment_paths(tmp_path / "whole")[0].read_bytes()
    cut = tmp_path / "cut.jsonl"
    for length in range(0, len(data), 37):
        cut.write_bytes(data[:length])
        records = [r for r in read_segment(cut) if r is not None]
        assert len(records) == data[:length].count(b"\n")


def test_garbage_in_the_middle_is_counted_and_skipped(tmp_path):
    with Store(tmp_path) as store:
        store.append(RECORD)
        store.append(RECORD)
    path = segment_paths(tmp_path)[0]
    first, second, _ = path.read_bytes().split(b"\n")
    path.write_bytes(first + b"\n\xff\xfe{nonsense\n" + second + b"\n")
    contents = Store(tmp_path).read()
    assert (len(contents.records), contents.num_damaged) == (2, 1)


def test_a_file_in_place_of_the_folder_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match="could not be written"):
        Store(tmp_path / "file").append(RECORD)


def test_index_answers_like_the_segments_and_follows_them(tmp_path):
    with Store(tmp_path) as store:
        store.append(RECORD)
        store.append(replace(RECORD, workload="alexnet", samples_s=(0.5,)))
        found = find_records(tmp_path, "workload = ? AND median_s > 0.4", ["alexnet"])
        assert [r.workload for r in found] == ["alexnet"]
        store.append(replace(RECORD, workload="vgg16"))
    assert find_records(tmp_path, "workload = 'vgg16'") == (replace(RECORD, workload="vgg16"),)


def test_a_broken_or_lost_index_is_rebuilt(tmp_path):
    with Store(tmp_path) as store:
        store.append(RECORD)
    path = refresh_index(tmp_path)
    path.write_bytes(b"not a database at all")
    assert find_records(tmp_path) == (RECORD,)
    path.unlink()
    assert find_records(tmp_path) == (RECORD,)


def test_a_wrong_condition_is_a_message(tmp_path):
    with pytest.raises(InvalidInputError, match="is not a condition"):
        find_records(tmp_path, "colour = 'red'")
