"""Print the size figures of the package, and fail where it or what stands beside it is too long.

The columns are those by which well-kept packages were compared: lines and files, function
length (median / p90 / max, nested ones included), functions over 60 lines, module length,
comment lines per 100 code lines, public names with a docstring, annotated parameters and returns.
"""

from __future__ import annotations

import ast
import gc
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_FUNCTION_LINES = 80
MAX_MODULE_LINES = 600
MAX_FOLDER_MODULES = 15
#: Folders of one kind of plug-in: verbs, launch targets, engines.
PLUG_INS = ("app/verbs", "deployment/targets", "execution/engines")
ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "paceline"
#: What keeps the bounds without standing in the table.
BESIDE = ("tools", "benchmarks", "tests", "examples")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One source file, parsed."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def num_lines(self) -> int:
        """All of them."""
        return self.text.count("\n")

    def functions(self) -> Iterator[Function]:
        """Every function, nested ones too; statements alone have any."""
        left: list[ast.AST] = [self.tree]
        while left:
            node = left.pop()
            if isinstance(node, Function):
                yield node
            for name in ("body", "orelse", "finalbody", "handlers", "cases"):
                left += getattr(node, name, ())


def read_module(path: Path) -> Module:
    """Parse one file."""
    text = path.read_text(encoding="utf-8")
    return Module(path=path, text=text, tree=ast.parse(text))


#: A comment or a string of either kind of quotes, the long ones first.
_COMMENT_OR_STRING = re.compile(
    r"""#[^\n]*|\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""",
    re.DOTALL,
)


def lines_with(module: Module) -> tuple[int, int]:
    """How many lines have code, and how many a comment; a string stands where it begins."""
    comments = 0

    def bare(found: re.Match[str]) -> str:
        nonlocal comments
        is_comment = found[0].startswith("#")
        comments += is_comment
        return "" if is_comment else "text" + "\n" * found[0].count("\n")

    code = _COMMENT_OR_STRING.sub(bare, module.text)
    return sum(map(bool, map(str.strip, code.split("\n")))), comments


def modules_in(folder: Path) -> list[Module]:
    """Every source file below a folder."""
    return [read_module(path) for path in sorted(folder.rglob("*.py"))]


def num_lines(function: Function) -> int:
    """From ``def`` to the last line."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def percentile(values: Sequence[int], share: float) -> int:
    """The value below which a share of all lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def documented_share(modules: Sequence[Module]) -> float:
    """Share of public functions and classes with a docstring."""
    public = [n for m in modules for n in _public(m.tree)]
    return sum(ast.get_docstring(n) is not None for n in public) / max(1, len(public))


def _public(tree: ast.Module) -> Iterator[ast.ClassDef | Function]:
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, Function)) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from (
                    n for n in node.body if isinstance(n, Function) and not n.name.startswith("_")
                )


def annotated_share(functions: Sequence[Function]) -> float:
    """Share of parameters and returns with a type."""
    total = annotated = 0
    for function in functions:
        arguments = function.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        slots = [a.annotation for a in named if a.arg not in ("self", "cls")] + [function.returns]
        total += len(slots)
        annotated += sum(s is not None for s in slots)
    return annotated / max(1, total)


def table(modules: Sequence[Module]) -> str:
    """The figures as a table."""
    functions = [f for m in modules for f in m.functions()]
    lengths = [num_lines(f) for f in functions]
    sizes = [m.num_lines for m in modules]
    code, comments = (sum(counts) for counts in zip(*map(lines_with, modules), strict=True))
    return "\n".join((
        "| lines / files | function median / p90 / max | >60 lines | module median / p90 / max "
        "| comments | docs | types |",
        "|---|---|---|---|---|---|---|",
        f"| {sum(sizes) / 1000:.1f}k / {len(modules)} "
        f"| {statistics.median(lengths):.0f} / {percentile(lengths, 0.9)} / {max(lengths)} "
        f"| {sum(n > 60 for n in lengths) / len(lengths):.1%} "
        f"| {statistics.median(sizes):.0f} / {percentile(sizes, 0.9)} / {max(sizes)} "
        f"| {100 * comments / code:.0f} | {documented_share(modules):.0%} "
        f"| {annotated_share(functions):.0%} |",
    ))  # fmt: skip


def offences(modules: Sequence[Module]) -> list[str]:
    """What crosses a bound, by file and line."""
    found = [
        f"{m.path}: {m.num_lines} lines, at most {MAX_MODULE_LINES}"
        for m in modules
        if m.num_lines > MAX_MODULE_LINES
    ]
    found += [
        f"{m.path}:{f.lineno}: {f.name} has {num_lines(f)} lines, at most {MAX_FUNCTION_LINES}"
        for m in modules
        for f in m.functions()
        if num_lines(f) > MAX_FUNCTION_LINES
    ]
    return found


def crowded(modules: Sequence[Module]) -> list[str]:
    """Folders of the package with more modules than a reader keeps in mind."""
    folders = Counter(m.path.parent for m in modules if m.path.name != "__init__.py")
    exempt = {PACKAGE / name for name in PLUG_INS}
    return [
        f"{folder}: {count} modules, at most {MAX_FOLDER_MODULES}"
        for folder, count in folders.items()
        if count > MAX_FOLDER_MODULES and folder not in exempt
    ]


def main() -> int:
    """Print the table; 1 where a bound is crossed."""
    # Trees come by the million, and stay until the end.
    gc.disable()
    package = modules_in(PACKAGE)
    print(table(package))
    found = crowded(package) + offences(
        [*package, *(m for name in BESIDE for m in modules_in(ROOT / name))]
    )
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
