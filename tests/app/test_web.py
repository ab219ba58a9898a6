"""The local page answers what the command line does, to its own tab alone, and runs nothing."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("jinja2")

from starlette.testclient import TestClient

from paceline.app.api.planning import plan
from paceline.app.web.answers import Facts
from paceline.app.web.bundle import Bundle
from paceline.app.web.guard import MOST_BYTES, Address
from paceline.app.web.models import Models
from paceline.app.web.query import OPTIONS, Question, read_question
from paceline.app.web.server import build
from paceline.app.web.uploads import Uploads
from paceline.catalog.load import load_catalog
from paceline.errors import PacelineError
from paceline.planning.goal.files import load_plan
from paceline.reporting.screens.plans import headline
from paceline.watch.folder import new_run, write_run

DAY = "2026-11-20"
ADDRESS = Address(port=8765, token="t0ken")
HOME = "http://127.0.0.1:8765"
SMALL = "/answer?model=mnist-cnn&cloud=lambda&max-devices=1"
HOSTILE = "<img src=x onerror=alert(1)>"
PART = {"HX-Request": "true"}


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def app(folder: Path) -> object:
    facts = Facts(as_of=DAY, runs=folder / "runs")
    return build(ADDRESS, facts, folder, Bundle())


@pytest.fixture
def stranger(app: object) -> Iterator[TestClient]:
    with TestClient(app, base_url=HOME, follow_redirects=False) as client:  # type: ignore[arg-type]
        yield client


@pytest.fixture
def page(stranger: TestClient) -> TestClient:
    stranger.cookies.set(ADDRESS.cookie, ADDRESS.token)
    return stranger


def test_the_token_of_the_address_becomes_a_cookie_that_scripts_cannot_read(
    stranger: TestClient,
) -> None:
    answer = stranger.get(f"/?token={ADDRESS.token}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=strict" in answer.headers["set-cookie"]
    assert stranger.get("/").status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"cookie": f"{ADDRESS.cookie}=guessed"}, 401),
        ({"cookie": "\x00=;;;"}, 401),
        ({"host": "evil.example:8765"}, 400),
        ({"host": "127.0.0.1"}, 400),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_strangers_are_refused(stranger: TestClient, headers: dict[str, str], status: int) -> None:
    for path in ("/", "/answer", "/plan.yaml", "/runs", "/static/charts.js", "/nowhere"):
        assert stranger.get(path, headers=headers).status_code == status


def test_another_site_posts_nothing(page: TestClient) -> None:
    for origin in (None, "http://evil.example", "http://127.0.0.1:1"):
        headers = {} if origin is None else {"origin": origin}
        assert page.post("/upload?name=a.npz", headers=headers, content=b"x").status_code == 403
    assert page.request("PUT", "/upload", headers={"origin": HOME}).status_code == 405


def test_every_answer_forbids_what_is_from_elsewhere(page: TestClient) -> None:
    for path in ("/", SMALL, "/runs", "/nowhere", "/plan.yaml?model=nope"):
        policy = page.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        for tag, attributes in Tags(page.get(path).text).found:
            for name in ("src", "href", "action"):
                assert (attributes.get(name) or "/")[:1] in "/#d", (tag, attributes)
            assert not [name for name in attributes if name.startswith("on") or name == "style"]


def test_the_answer_is_that_of_the_command_line(page: TestClient) -> None:
    answer = page.get(f"{SMALL}&deadline=2h", headers=PART)
    found = plan("mnist-cnn", cloud="lambda", max_devices="1", deadline="2h", as_of=DAY)
    assert escape(headline(found)) in answer.text
    assert "paceline plan mnist-cnn --deadline 2h --cloud lambda --max-devices 1" in answer.text
    assert answer.headers["hx-replace-url"].startswith("/?model=mnist-cnn&task=train&deadline=2h")
    assert "<html" not in answer.text
    assert "<html" in page.get(f"{SMALL}&deadline=2h").text


def test_what_is_downloaded_is_the_plan(page: TestClient) -> None:
    query = SMALL.partition("?")[2]
    read = load_plan(page.get(f"/plan.yaml?{query}").text)
    assert read == plan("mnist-cnn", cloud="lambda", max_devices="1", as_of=DAY)
    packed = page.get(f"/launch.zip?{query}&target=slurm&choice=1&command=python+t.py")
    files = zipfile.ZipFile(io.BytesIO(packed.content)).namelist()
    assert any(name.endswith(".sbatch") or "slurm" in name for name in files)
    assert page.get(f"/launch.zip?{query}&target=nope").status_code == 400
    assert page.get(f"/launch.zip?{query}&target=slurm&choice=x").status_code == 400


@pytest.mark.parametrize("part", ["anatomy", "scaling", "deadlines"])
def test_parts_have_their_charts(page: TestClient, part: str) -> None:
    answer = page.get(f"/{part}?model=mnist-cnn&cloud=lambda&max-devices=1&deadline=1h")
    assert answer.status_code == 200
    specs = [a for t, a in Tags(answer.text).found if t == "script"]
    assert specs
    assert {a["type"] for a in specs} == {"application/json"}


def test_a_load_is_shown_beside_others(page: TestClient) -> None:
    query = "model=gpt2&task=infer&rps=2&cloud=lambda&device=a10&max-devices=1"
    assert "Latency against load" in page.get(f"/load?{query}").text
    assert page.get("/load?model=mnist-cnn&task=infer").status_code == 400


def test_two_questions_are_compared(page: TestClient) -> None:
    query = "/compare?first=model%3Dmnist-cnn%26cloud%3Dlambda&second=model%3Dmnist-cnn"
    text = page.get(query).text
    assert "Side by side" in text
    assert text.count("USD/h") == 1


def test_names_are_offered_while_typing(page: TestClient) -> None:
    assert '<option value="resnet50">' in page.get("/models?model=resnet").text
    assert page.get("/models?model=").text.strip() == ""
    assert page.get("/models?model=zzzz", headers=PART).status_code == 200


@pytest.mark.parametrize(
    "model",
    [
        HOSTILE, "os:system", "../../etc/passwd", "/etc/passwd", "~/x.npz", "plan.yaml", "a.pt2",
        "torchvision:../../x", "hf:/etc/passwd", "upload:../../etc/passwd", "upload:nope.npz",
        "transformer:layers=9999999999", "‮", "x" * 500, "hf:config.json", "published:os",
    ],
)  # fmt: skip
def test_a_name_opens_no_file_and_runs_no_code(page: TestClient, model: str) -> None:
    for path in ("/answer", "/anatomy", "/plan.yaml"):
        answer = page.get(path, params={"model": model})
        assert answer.status_code in (200, 400)
        assert HOSTILE not in answer.text
        assert 'role="alert"' in answer.text


def test_unknown_words_are_refused_and_not_left_out(page: TestClient) -> None:
    assert "did you mean" in page.get(f"{SMALL}&dedline=2h").text
    assert "no task named" in page.get(f"{SMALL}&task=fly").text
    for bad in ("seq=-1", "seq=1e9", "deadline=soon", "max-devices=none", "budget=%00"):
        assert 'role="alert"' in page.get(f"{SMALL}&{bad}").text


def test_a_config_is_dropped_and_what_is_none_is_refused(page: TestClient) -> None:
    own = {"origin": HOME}
    kept = page.post("/upload?name=../../config.json", headers=own, content=b"{}")
    assert kept.status_code == 303
    name = kept.headers["location"].partition("model=")[2]
    assert name.startswith("upload%3A")
    assert ".." not in name
    for bad in ("x.pt2", "x.py", "x", "", "x.json.sh", "a/b\\c.pkl"):
        answer = page.post("/upload", params={"name": bad}, headers=own, content=b"{}")
        assert answer.status_code == 400
    damaged = page.post("/upload?name=m.npz", headers=own, content=b"not a workload")
    answer = page.get(f"/answer?{damaged.headers['location'].partition('?')[2]}")
    assert 'role="alert"' in answer.text


_EXPORTED = Path(__file__).parents[1] / "unit" / "model" / "data" / "onnx" / "resnet18.onnx"


def _keras(*layers: dict[str, object]) -> bytes:
    """A ``.keras`` file of a picture's layers."""
    batch = {"name": "in", "batch_shape": [None, 32, 32, 3]}
    first = {"module": "keras.layers", "class_name": "InputLayer", "config": batch}
    config = {"class_name": "Sequential", "config": {"name": "s", "layers": [first, *layers]}}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("config.json", json.dumps(config))
    return packed.getvalue()


def _layer(kind: str, **config: object) -> dict[str, object]:
    return {"module": "keras.layers", "class_name": kind, "config": {"name": kind, **config}}


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("exported.onnx", _EXPORTED.read_bytes(), "exported.onnx"),
        ("own.keras", _keras(_layer("Flatten"), _layer("Dense", units=10)), "own.keras"),
        ("code.keras", _keras(_layer("Lambda", function={"class_name": "__lambda__"})), "Lambda"),
        ("broken.onnx", b"\x08" * 100, 'role="alert"'),
        ("broken.gguf", b"GGUF" + b"\xff" * 100, 'role="alert"'),
    ],
)
def test_files_of_other_frameworks_are_dropped_and_only_read(
    page: TestClient, name: str, data: bytes, says: str
) -> None:
    kept = page.post(f"/upload?name={name}", headers={"origin": HOME}, content=data)
    asked = kept.headers["location"].partition("?")[2]
    goal = "samples=10000&epochs=1&cloud=lambda&max-devices=1"
    answer = page.get(f"/answer?{asked}&{goal}", headers=PART)
    assert answer.status_code == 200
    assert says in answer.text
    is_refused = 'role="alert"' in answer.text
    assert is_refused == (not name.startswith(("exported", "own")))


def test_what_is_too_large_is_not_read(page: TestClient) -> None:
    headers = {"origin": HOME, "content-length": str(MOST_BYTES + 1)}
    assert page.post("/upload?name=a.npz", headers=headers, content=b"").status_code == 413
    pieces = (b"\0" * 1_000_000 for _ in range(MOST_BYTES // 1_000_000 + 2))
    answer = page.post("/upload?name=a.npz", headers={"origin": HOME}, content=pieces)
    assert answer.status_code == 400
    assert "more than" in answer.text


def test_runs_are_shown_with_their_names_escaped(page: TestClient, folder: Path) -> None:
    assert "None yet" in page.get("/runs").text
    write_run(new_run(["python", HOSTILE], folder=folder / "runs"))
    listed = page.get("/runs").text
    assert HOSTILE not in listed
    assert escape(HOSTILE) in listed
    name = next((folder / "runs").iterdir()).name
    shown = page.get(f"/runs/{name}")
    assert shown.status_code == 200
    assert HOSTILE not in shown.text
    assert "<html" not in page.get(f"/runs/{name}", headers=PART).text
    assert page.get("/runs/nope").status_code == 400
    assert page.get("/runs/..%2F..").status_code in (400, 404)


def test_an_address_is_read_and_written_alike() -> None:
    given = {"model": "gpt2", "task": "infer", "rps": "5", "spot": "yes", "seq": "128"}
    question = read_question(given)
    assert question.command("gpt2").split()[2:] == [
        "gpt2", "--task", "infer", "--rps", "5", "--spot", "--seq", "128",
    ]  # fmt: skip
    assert question.keywords()["spot"] is True
    assert question.keywords()["seq"] == 128
    assert set(OPTIONS) >= {"deadline", "budget", "rps", "ttft", "tpot"}
    assert Question(model="a").replaced(deadline="2h").value("deadline") == "2h"
    with pytest.raises(PacelineError, match="option"):
        read_question({"facts": "/etc/passwd"})


def test_the_first_paint_is_small(page: TestClient) -> None:
    first = page.get("/")
    parts = [a.get("href") or a.get("src") for t, a in Tags(first.text).found]
    files = [path for path in parts if path and path.startswith("/static/")]
    packed = 0
    for path in files:
        with page.stream("GET", path) as answer:
            packed += sum(map(len, answer.iter_raw()))
    assert len(files) == 3
    assert len(first.content) + packed <= 60_000


def test_a_goal_that_is_moved_reads_its_model_once(tmp_path: Path) -> None:
    models = Models(Uploads(tmp_path), None)
    first, second, other = (
        read_question({"model": "resnet50", "task": "train", **more})
        for more in ({"deadline": "24h"}, {"deadline": "2h"}, {"optimizer": "adamw"})
    )
    found = models.workload(first)
    assert models.workload(second) is found
    assert models.workload(other) is not found


def test_the_answer_of_a_kept_model_is_that_of_the_command_line(page: TestClient) -> None:
    for deadline in ("30h", "20h"):
        shown = page.get(f"/plan.yaml?model=resnet50&deadline={deadline}").text
        assert load_plan(shown) == plan("resnet50", deadline=deadline, as_of=DAY)


def test_files_that_did_not_change_are_one_catalogue(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    text = (Path(__file__).parents[2] / "docs/how-to/examples/devices.toml").read_text("utf-8")
    own.write_text(text)
    first = load_catalog((own,))
    assert load_catalog((own,)) is first
    own.write_text(text + "\n")
    assert load_catalog((own,)) is not first
