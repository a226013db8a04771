"""Small faults in Python sources: one expression or statement changed, everything else left as it is."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_COMPUTED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.MatMult: ast.Mult,
}  # fmt: skip
_CALLED = {
    "min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum",
    "amin": "amax", "amax": "amin", "sum": "mean", "mean": "sum", "argmax": "argmin", "floor": "ceil", "ceil": "floor",
    "clamp_min": "clamp_max", "clamp_max": "clamp_min", "sorted": "list", "add_": "sub_", "mul_": "div_",
    "append": "insert",
}  # fmt: skip
_NAMED = frozenset(("__repr__", "_repr_html_", "__str__"))  # for people to read: no test should copy their words


@dataclass(frozen=True)
class Fault:
    """One change of one file, as text."""

    file: str  # within the package
    line: int
    start: int  # of the text that is replaced
    end: int
    new: str
    what: str  # old -> new, on one line

    @property
    def name(self) -> str:
        """What stays the same where lines above move."""
        return f"{self.file}: {self.what}"

    def applied(self, source: str) -> str:
        """The source with the fault in it."""
        data = source.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()


def faults(root: Path, file: str) -> Iterator[Fault]:
    """Every fault of a file, in the order of its lines."""
    source = (root / file).read_text(encoding="utf-8")
    offsets = [0]
    for line in source.encode().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    for old, new in _changes(ast.parse(source)):
        assert isinstance(old, ast.expr | ast.stmt)
        assert old.end_lineno is not None
        assert old.end_col_offset is not None
        start = offsets[old.lineno - 1] + old.col_offset
        end = offsets[old.end_lineno - 1] + old.end_col_offset
        before = " ".join(source.encode()[start:end].decode().split())
        text = new if isinstance(new, str) else ast.unparse(new)
        replacement = text if isinstance(old, ast.stmt) else f"({text})"
        yield Fault(file, old.lineno, start, end, replacement, f"{before} -> {text}")


def _changes(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | str]]:
    for node in _walk(tree):
        yield from _of(node)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """All that is carried out: no annotations, decorators, messages of errors, docstrings, or checks for mypy."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _is_left_out(child):
                continue
            yield child
            yield from _walk(child)


def _is_left_out(node: ast.AST) -> bool:
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    typing = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    named = isinstance(node, ast.FunctionDef) and node.name in _NAMED
    kinds = (ast.Raise, ast.Assert, ast.Import, ast.ImportFrom, ast.JoinedStr)
    return text or typing or named or isinstance(node, kinds)


def _of(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | str]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
        yield node, _with(node, ops=[_COMPARED[type(node.ops[0])]()])
    elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        yield node, _with(node, op=_COMPUTED[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield node, _with(node, op=ast.And() if isinstance(node.op, ast.Or) else ast.Or())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node, node.operand
    elif isinstance(node, ast.Constant):
        yield from ((node, new) for new in _constants(node.value))
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.IfExp):
        yield node, node.body
        yield node, node.orelse
    elif isinstance(node, ast.If | ast.While):
        yield node.test, "False"
        if isinstance(node, ast.If):
            yield node.test, "True"
    elif isinstance(node, ast.AugAssign | ast.Expr) and not _is_yield(node):
        yield node, "pass"
    elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield node, "return None"


def _is_yield(node: ast.AugAssign | ast.Expr) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield | ast.YieldFrom)


def _constants(value: object) -> Iterator[str]:
    if isinstance(value, bool):
        yield repr(not value)
    elif isinstance(value, int):
        yield repr(value + 1)
    elif isinstance(value, float):
        yield repr(value * 2.0 if value else 1.0)


def _calls(node: ast.Call) -> Iterator[tuple[ast.AST, ast.AST | str]]:
    called = node.func
    if isinstance(called, ast.Attribute) and called.attr in _CALLED:
        yield called, _with(called, attr=_CALLED[called.attr])
    elif isinstance(called, ast.Name) and called.id in _CALLED:
        yield called, _with(called, id=_CALLED[called.id])
    elif isinstance(called, ast.Attribute) and called.attr in ("clone", "detach", "contiguous", "abs", "square"):
        yield node, called.value


def _with(node: ast.AST, **changes: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed
