"""What each address of the local page answers: a question is read, asked, and put in a template."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from paceline.app.web.answers import Answers, Facts
from paceline.app.web.assets import assets
from paceline.app.web.bundle import Bundle
from paceline.app.web.guard import MOST_BYTES
from paceline.app.web.query import Question, read_question
from paceline.app.web.uploads import Uploads, endings
from paceline.errors import InvalidInputError, PacelineError
from paceline.reporting.pages.html import page_html, render
from paceline.values import dataclass

#: What a slider goes through, as it is written in its field.
_LADDERS = {
    "deadline": "15min 30min 1h 2h 3h 4h 6h 8h 12h 18h 24h 36h 48h 72h 5d 7d 10d 14d 21d 30d 60d",
    "budget": "1usd 2usd 5usd 10usd 20usd 50usd 100usd 200usd 500usd 1000usd 2000usd 5000usd "
    "10000usd 50000usd 100000usd 1000000usd",
    "rps": "0.1 0.2 0.5 1 2 5 10 20 50 100 200 500 1000",
    "ttft": "50ms 100ms 200ms 300ms 500ms 1s 2s 5s 10s",
    "tpot": "5ms 10ms 15ms 20ms 30ms 50ms 80ms 100ms 150ms 200ms",
}
_FOREVER = {"Cache-Control": "private, max-age=31536000, immutable", "Content-Encoding": "gzip"}
_NUM_NAMES = 40
_LAUNCHED_HERE = ("command", "target", "choice")


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """Everything that the page answers, with what it answers from."""

    answers: Answers
    facts: Facts
    uploads: Uploads
    bundle: Bundle

    def routes(self) -> list[Route]:
        """Addresses."""
        pages: Mapping[str, Callable[[Request], Response]] = {
            "/": self.start,
            "/answer": self.answer,
            "/anatomy": self.panel(self.answers.anatomy),
            "/scaling": self.panel(self.answers.scaling),
            "/deadlines": self.panel(self.answers.deadlines),
            "/load": self.panel(self.answers.load),
            "/compare": self.compare,
            "/models": self.models,
            "/plan.yaml": self.plan_file,
            "/report.html": self.report,
            "/launch.zip": self.launch,
            "/runs": self.runs,
            "/runs/{name}": self.run,
            "/static/charts.js": self.charts,
            "/static/{name}": self.asset,
        }
        routes = [Route(path, _told(view), methods=["GET"]) for path, view in pages.items()]
        return [*routes, Route("/upload", self.upload, methods=["POST"])]

    def start(self, request: Request) -> Response:
        """The page with its form; the answer follows."""
        return self._whole("start.html.j2", request, **self._form(request.query_params))

    def answer(self, request: Request) -> Response:
        """The plan: alone for a page that is open, else within a page."""
        values = dict(request.query_params)
        question = read_question(values)
        kept = values.get("keep", "")
        shown: dict[str, Any] = {
            "question": question,
            "command": self.answers.command(question),
            "address": question.address(),
            "keep": kept,
            "compared": urlencode({"first": kept, "second": question.address()}),
            **_planned(self.answers, question),
        }
        if "hx-request" in request.headers:
            text = render("answer.html.j2", **shown)
            place = urlencode([*_pairs(question), *([("keep", kept)] if kept else [])])
            return HTMLResponse(text, headers={"HX-Replace-Url": f"/?{place}"})
        form = self._form(values)
        return self._whole("start.html.j2", request, **{**form, "answer": shown})

    def panel(self, ask: Callable[[Question], Any]) -> Callable[[Request], Response]:
        """A view of a page that is asked for when it is opened."""

        def view(request: Request) -> Response:
            page = ask(read_question(request.query_params))
            return HTMLResponse(render("panel.html.j2", page=page))

        return view

    def compare(self, request: Request) -> Response:
        """Two questions side by side."""
        from paceline.reporting.pages.changes import comparison_page

        questions = [_question_of(request.query_params.get(x, "")) for x in ("first", "second")]
        page = comparison_page(*map(self.answers.plan, questions))
        return self._whole("page.html.j2", request, page=page, back=questions[1].address())

    def models(self, request: Request) -> Response:
        """Names that hold what was typed."""
        from paceline.app.api.catalog import models

        typed = request.query_params.get("model", "")[:80]
        found = tuple(models(typed)) if typed.strip() else ()
        return HTMLResponse(render("names.html.j2", models=found[:_NUM_NAMES]))

    def plan_file(self, request: Request) -> Response:
        """The plan file, to be kept."""
        from paceline.planning.goal.files import dump_plan

        plan = self.answers.plan(read_question(request.query_params))
        return _download(dump_plan(plan).encode(), "plan.yaml", "application/yaml")

    def report(self, request: Request) -> Response:
        """The frozen report of the plan."""
        from paceline.reporting.pages.planned import plan_page

        page = plan_page(self.answers.plan(read_question(request.query_params)))
        text = page_html(page, script=self.bundle.text())
        return _download(text.encode(), "report.html", "text/html; charset=utf-8")

    def launch(self, request: Request) -> Response:
        """Launch files, packed."""
        values = dict(request.query_params)
        command, target, choice = (values.pop(name, "") for name in _LAUNCHED_HERE)
        if choice and not (choice.isascii() and choice.isdigit() and len(choice) < 4):
            raise InvalidInputError(f"`{choice}` is no choice", hint="write a number: 1")
        question = read_question(values)
        made = self.answers.launch(question, target, command[:2000], int(choice or 1))
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in made.files:
                archive.writestr(file.path, file.text)
            archive.writestr("COMMAND.txt", f"{made.command}\n")
        return _download(packed.getvalue(), f"launch-{made.target}.zip", "application/zip")

    def runs(self, request: Request) -> Response:
        """Runs that were watched."""
        from paceline.app.api.running import runs_list
        from paceline.reporting.screens.runs import runs_table

        found = runs_list(runs=self.facts.runs)
        table = runs_table(found)
        return self._whole("runs.html.j2", request, listed=table, names=[run.id for run in found])

    def run(self, request: Request) -> Response:
        """A run beside its prediction, as it goes."""
        from paceline.app.api.running import run_progress
        from paceline.reporting.pages.runs import run_page

        name = request.path_params["name"]
        summary, step_s = run_progress(name, runs=self.facts.runs)
        shown = {"page": run_page(summary, step_s), "name": summary.id,
                 "is_live": summary.state == "running"}  # fmt: skip
        if "hx-request" in request.headers:
            return HTMLResponse(render("run_now.html.j2", **shown))
        return self._whole("run.html.j2", request, **shown)

    def asset(self, request: Request) -> Response:
        """A file of the page."""
        for one in assets().values():
            if one.address == request.url.path:
                return Response(one.packed, media_type=one.kind, headers=_FOREVER)
        return PlainTextResponse("no such file\n", status_code=404)

    def charts(self, _request: Request) -> Response:
        """The script that draws."""
        kind = assets()["page"].kind
        headers = {"Content-Encoding": "gzip", "Cache-Control": "private, max-age=3600"}
        return Response(self.bundle.packed(), media_type=kind, headers=headers)

    async def upload(self, request: Request) -> Response:
        """Keep a model that was dropped, and go on with it."""
        try:
            name = await self._kept(request)
        except PacelineError as refusal:
            return _refusal(request, refusal)
        except ClientDisconnect:
            return PlainTextResponse("gone\n", status_code=400)
        return RedirectResponse(f"/?{urlencode({'model': name})}", status_code=303)

    async def _kept(self, request: Request) -> str:
        """Name of a file in the body, which may come in pieces of unknown number."""
        data = bytearray()
        async for piece in request.stream():
            data += piece
            if len(data) > MOST_BYTES:
                raise InvalidInputError(
                    f"a model of more than {MOST_BYTES // 1_000_000} MB",
                    hint="leave its weights out, or name the file on the command line: "
                    "`paceline plan model.onnx`",
                )
        filename = request.query_params.get("name", "")[:200]
        return await run_in_threadpool(self.uploads.keep, filename, bytes(data))

    def _form(self, values: Mapping[str, str]) -> dict[str, Any]:
        try:
            question = read_question(values)
        except PacelineError:
            question = read_question({})
        return {
            "question": question, "ladders": _LADDERS, "keep": values.get("keep", ""),
            "address": question.address(), "answer": None,
            "title": self.uploads.title(question.model), "goal": _is_goal(question),
            "endings": endings()[1:],
        }  # fmt: skip

    def _whole(self, template: str, request: Request, **values: object) -> Response:
        return HTMLResponse(render(template, assets=assets(), path=request.url.path, **values))


def _planned(answers: Answers, question: Question) -> dict[str, Any]:
    """What a template says of a plan, or of why there is none."""
    from paceline.deployment.deploying import targets
    from paceline.reporting.pages.planned import plan_page
    from paceline.reporting.screens.plans import headline

    try:
        plan = answers.plan(question)
    except PacelineError as refusal:
        return {"refusal": refusal, "page": None, "headline": str(refusal)}
    return {
        "refusal": None, "page": plan_page(plan), "headline": headline(plan),
        "task": plan.workload.task, "has_load": bool(plan.workload.requests_per_s),
        "targets": [one.name for one in targets()], "num_choices": len(plan.choices),
    }  # fmt: skip


def _is_goal(question: Question) -> dict[str, str]:
    return dict(question.options)


def _pairs(question: Question) -> list[tuple[str, str]]:
    return [("model", question.model), ("task", question.task), *question.options]


def _question_of(address: str) -> Question:
    from urllib.parse import parse_qsl

    return read_question(dict(parse_qsl(address[:4000])))


def _download(data: bytes, name: str, kind: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(data, media_type=kind, headers=headers)


def _told(view: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """A view whose refusals are told on a page."""

    def asked(request: Request) -> Response:
        """The view, or the page of its refusal."""
        try:
            return view(request)
        except PacelineError as refusal:
            return _refusal(request, refusal)

    return asked


def _refusal(request: Request, refusal: PacelineError) -> Response:
    shown = {"refusal": refusal, "assets": assets(), "path": request.url.path}
    is_part = "hx-request" in request.headers
    # A part of a page is shown where it was asked for, whatever it says.
    template, status = ("refusal.html.j2", 200) if is_part else ("refused.html.j2", 400)
    return HTMLResponse(render(template, **shown), status_code=status)
