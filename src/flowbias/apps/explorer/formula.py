"""What readers type, never run: a formula `u^2 - v^2` and equations `1, 2 = 1; 0, 1 = 0.5`.

    sum      = product {("+" | "-") product}
    product  = signed {("*" | "/") signed}
    signed   = ("+" | "-") signed | power
    power    = atom ["^" exponent]
    exponent = ["+" | "-"] number | "(" ["+" | "-"] number ")"
    atom     = number | name | function "(" sum ")" | "(" sum ")"

A formula is cut into known words, the order of which is checked from left to right; of these alone
a text is written anew for Python's own grammar, which knows what binds how tightly. Its tree is
walked, never compiled. Signs bind as in Python: -u^2 is -(u^2). Constants are folded, so that what
is no finite number is refused with its column.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from flowbias.ground.arguments import InputError
from flowbias.problems.regression import Regression

#: One entry per coordinate of the predictor.
VECTORS = ("u", "v", "p", "q")
#: One number that all coordinates share.
SCALARS = ("a", "b", "c")
#: Every function that a formula may call, with its derivative; tensors have methods of these names.
FUNCTIONS: Mapping[str, Callable[[Any], tuple[Any, Any]]] = {
    "exp": lambda x: (value := np.exp(x), value),
    "log": lambda x: (np.log(x), 1.0 / x),
    "sqrt": lambda x: (value := np.sqrt(x), 0.5 / value),
    "tanh": lambda x: (value := np.tanh(x), 1.0 - value * value),
    # By tanh, which overflows nowhere.
    "sigmoid": lambda x: (value := 0.5 * (1.0 + np.tanh(0.5 * x)), value * (1.0 - value)),
    "sin": lambda x: (np.sin(x), np.cos(x)),
    "cos": lambda x: (np.cos(x), -np.sin(x)),
}
#: Longest formula, and longest line of equations, in characters.
LONGEST = 200
#: Predictors that a picture can show, at most; the fewest are two.
MOST = 3


class Arithmetic(NamedTuple):
    """What the parts of a formula are computed with."""

    operators: Mapping[type[ast.operator], Callable[[Any, Any], Any]]
    #: functions by their names
    calls: Mapping[str, Callable[[Any], Any]]
    number: Callable[[float], Any]


#: Numbers are numbers, and functions are methods of what the names stand for.
PLAIN = Arithmetic(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
        ast.Pow: operator.pow,
    },
    {name: operator.methodcaller(name) for name in FUNCTIONS},
    number=lambda value: value,
)
# ASCII only: \d and \w would take digits and letters of every alphabet.
_NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_TOKEN = re.compile(
    rf"[ \t]*(?:(?P<number>{_NUMBER})|(?P<name>[A-Za-z_][A-Za-z_0-9]*)|(?P<sign>\*\*|[-+*/^()]))"
)
_NO_EXPONENT = "an exponent must be a number, e.g. u^3, u^-1 or u^(0.5)"
_MEANT = {"²": "^2", "³": "^3", "·": "*", "×": "*", "−": "-", "÷": "/", "[": "(", "]": ")"}


@dataclass(frozen=True)
class Formula:
    """A formula that has been read; formulas are equal where their texts are."""

    #: With as few parentheses as possible, and `^` for powers.
    text: str
    _tree: ast.expr = field(compare=False, repr=False)

    @cached_property
    def names(self) -> frozenset[str]:
        """The parameters in it."""
        return frozenset(
            node.id
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Name) and node.id not in FUNCTIONS
        )

    @property
    def size(self) -> int:
        """How many operations, numbers and names there are: what evaluating it costs."""
        nodes = list(ast.walk(self._tree))
        free = sum(isinstance(node, ast.Call | ast.Pow) for node in nodes)
        return sum(isinstance(node, ast.expr) for node in nodes) - free

    @property
    def python(self) -> str:
        """As Python for people to copy, with the functions of torch."""
        written = ast.unparse(self._tree)
        return re.sub(rf"\b({'|'.join(FUNCTIONS)})\(", r"torch.\1(", written)

    def value(self, names: Mapping[str, Any], arithmetic: Arithmetic = PLAIN) -> Any:
        """With these values of the names."""
        return _value(self._tree, names, arithmetic)


def _value(node: Any, names: Mapping[str, Any], by: Arithmetic) -> Any:
    kind = type(node)
    if kind is ast.BinOp:
        left, right = _value(node.left, names, by), _value(node.right, names, by)
        return by.operators[type(node.op)](left, right)
    if kind is ast.Name:
        return names[node.id]
    if kind is ast.Constant:
        return by.number(node.value)
    if kind is ast.UnaryOp:
        return -_value(node.operand, names, by)
    return by.calls[node.func.id](_value(node.args[0], names, by))


def parse(text: str) -> Formula:
    """The formula in a text; InputError names the column and the fix where it is none."""
    tokens = _tokens(text)
    _require_order(tokens)
    tree = _Folding(tokens).tree
    formula = Formula(ast.unparse(tree).replace(" ** ", "^"), tree)
    if not formula.names & set(VECTORS):
        raise _refused(1, f"needs one of the vectors {', '.join(VECTORS)}: w has an entry for each")
    return formula


# --- words and their order -----------------------------------------------------------------------


class _Token(NamedTuple):
    """A number, a name, a sign, or the end; columns count from 1."""

    kind: str
    text: str
    column: int


def _tokens(text: str) -> list[_Token]:
    """All tokens, with one at the end that says so; what is none is refused with its column."""
    if len(text) > LONGEST:
        raise InputError(
            f"formula: must have at most {LONGEST} characters, got {len(text)}. Shorten it."
        )
    found: list[_Token] = []
    place, end = 0, len(text.rstrip(" \t"))
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            raise _unknown(text, place)
        kind = str(match.lastgroup)
        word = match[kind]
        found.append(_Token(kind, "^" if word == "**" else word, match.end() - len(word) + 1))
        place = match.end()
    return [*found, _Token("end", "", end + 1)]


def _require_order(tokens: list[_Token], deepest: int = 30) -> None:
    """Operand, sign, operand, ...: what Python's grammar is asked has to be a formula of ours."""
    # Parentheses and signs that are still open: Python's own parser has a limit to them as well.
    levels: list[str] = []
    wants_operand, before = True, ""
    for token, after in zip(tokens, [*tokens[1:], tokens[-1]], strict=True):
        if not wants_operand:
            wants_operand = _goes_on(token, levels)
        elif token.text in ("(", "+", "-"):
            levels.append(token.text)
            if len(levels) > deepest:
                raise _refused(token.column, f"more than {deepest} levels inside one another")
        else:
            _require_operand(token, before, after)
            wants_operand = token.text in FUNCTIONS
            while not wants_operand and levels and levels[-1] != "(":
                levels.pop()
        before = token.text


def _require_operand(token: _Token, before: str, after: _Token) -> None:
    if token.kind == "number":
        if not math.isfinite(float(token.text)):
            raise _refused(token.column, f"{_shortened(token.text)} is too large for a number")
    elif before == "^":
        raise _refused(token.column, _NO_EXPONENT)
    elif token.kind != "name":
        got = f"`{token.text}`" if token.text else "the end"
        raise _refused(token.column, f"expected a number, a name or `(`, got {got}")
    elif token.text in FUNCTIONS:
        if after.text != "(":
            raise _refused(token.column, f"`{token.text}` is a function: write {token.text}(u)")
    elif token.text not in (*VECTORS, *SCALARS):
        known = (
            f"Names are {', '.join(VECTORS)} (vectors) and {', '.join(SCALARS)} (scalars); "
            f"functions are {', '.join(FUNCTIONS)}"
        )
        raise _refused(token.column, f"unknown name `{_shortened(token.text)}`. {known}")


def _goes_on(token: _Token, levels: list[str]) -> bool:
    """After an operand: whether another one has to follow. Closes what `)` closes."""
    if token.text in ("+", "-", "*", "/", "^"):
        return True
    if token.text == ")" and "(" in levels:
        while levels.pop() != "(":
            pass
        while levels and levels[-1] != "(":
            levels.pop()
    elif token.text == ")":
        raise _refused(token.column, "`)` closes nothing")
    elif "(" in levels:
        got = f"`{_shortened(token.text)}`" if token.text else "the end"
        raise _refused(token.column, f"expected a sign or `)`, got {got}")
    elif token.text:
        raise _refused(token.column, f"write a sign before `{_shortened(token.text)}`, e.g. * or +")
    return False


def _refused(column: int, why: str) -> InputError:
    """An error that says where in the formula."""
    return InputError(f"formula, column {column}: {why}.")


def _shortened(word: str) -> str:
    """A word of the reader's as it may be shown: escaped, and not at any length."""
    plain = ascii(word)[1:-1]
    return plain if len(plain) <= 24 else f"{plain[:20]}..."


def _unknown(text: str, place: int) -> InputError:
    while text[place] in " \t":
        place += 1
    mark = text[place]
    fix = f"Write {_MEANT[mark]}" if mark in _MEANT else "Use names, numbers, + - * / ^ and ( )"
    shown = mark if mark.isprintable() else ascii(mark)[1:-1]
    return _refused(place + 1, f"`{shown}` has no meaning here. {fix}")


# --- the tree ------------------------------------------------------------------------------------


def _for_python(tokens: list[_Token]) -> tuple[str, dict[int, int]]:
    """The tokens in the notation of Python, and by offset the columns in which they were typed."""
    python, columns = "", {}
    for token in tokens:
        columns[len(python)] = token.column
        plain = repr(float(token.text)) if token.kind == "number" else token.text
        python += "**" if plain == "^" else plain
    return python, columns


class _Folding(ast.NodeTransformer):
    """Python's tree of the tokens, with every constant part replaced by its value."""

    # Exponents in size: what goes beyond leaves the double range within a few steps of a flow.
    largest_exponent = 12

    def __init__(self, tokens: list[_Token]) -> None:
        self._python, self._columns = _for_python(tokens)
        self.tree: ast.expr = self.visit(ast.parse(self._python, mode="eval").body)

    def visit_Constant(self, node: Any) -> Any:
        return _number(node.value)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        of = self.visit(node.operand)
        if isinstance(node.op, ast.UAdd):
            return of
        return _number(-float(of.value)) if _is_number(of) else ast.UnaryOp(node.op, of)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        power, column = isinstance(node.op, ast.Pow), self._column_after(node.left)
        left = self.visit(node.left)
        right = self._exponent(node.right) if power else self.visit(node.right)
        if _is_number(left) and _is_number(right):
            # Python's own power of a negative number is complex.
            compute = math.pow if power else PLAIN.operators[type(node.op)]
            return _folded(column, compute, float(left.value), float(right.value))
        return ast.BinOp(left, node.op, right)

    def visit_Call(self, node: Any) -> Any:
        of = self.visit(node.args[0])
        if _is_number(of):
            column, call = self._columns[node.col_offset], FUNCTIONS[node.func.id]
            return _folded(column, lambda x: call(x)[0], float(of.value))
        return ast.Call(node.func, [of], [])

    def _exponent(self, node: Any) -> Any:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            column = self._column_after(node.left)
            raise _refused(column, "a power of a power needs parentheses: (u^2)^3")
        number: Any = node.operand if isinstance(node, ast.UnaryOp) else node
        column, most = self._columns[number.col_offset], self.largest_exponent
        if not _is_number(number):
            raise _refused(column, _NO_EXPONENT)
        if number.value > most:
            got = f"got {number.value:g}"
            raise _refused(column, f"an exponent must lie between -{most} and {most}, {got}")
        return self.visit(node)

    def _column_after(self, node: ast.expr) -> int:
        """Of the sign behind an operand and the parentheses that close after it."""
        end = node.end_col_offset or 0
        rest = self._python[end:]
        return self._columns[end + len(rest) - len(rest.lstrip(")"))]


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def _number(value: float) -> ast.Constant:
    """Written with all digits and no more: 2, 0.1, 1e-07."""
    whole = repr(value).endswith(".0") and repr(value) != "-0.0"
    return ast.Constant(int(value) if whole else value)


def _folded(column: int, compute: Callable[..., float], *numbers: Any) -> ast.Constant:
    """A constant, if it is a finite number."""
    try:
        with np.errstate(all="ignore"):
            value = float(compute(*numbers))
    except (ArithmeticError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise _refused(column, "this is no finite number")
    return _number(value)


# --- equations -----------------------------------------------------------------------------------

_FIX = "Write for instance 1, 2 = 1; 0.5, -1 = 0"


def read_equations(text: str, most: int = 5) -> Regression:
    """One row of X and one entry of y per equation; InputError says which is none."""
    if len(text) > LONGEST:
        raise InputError(f"equations: at most {LONGEST} characters, got {len(text)}. {_FIX}.")
    rows = [_equation(k + 1, part) for k, part in enumerate(text.split(";")) if part.strip()]
    if not 1 <= len(rows) <= most:
        raise InputError(f"equations: must be 1 to {most}, got {len(rows)}. {_FIX}.")
    width = len(rows[0][0])
    if not 2 <= width <= MOST:
        raise InputError(f"equations: must have 2 or {MOST} coefficients, got {width}. {_FIX}.")
    for k, (coefficients, _) in enumerate(rows):
        if len(coefficients) != width:
            raise InputError(
                f"equation {k + 1}: must have {width} coefficients like the first, got "
                f"{len(coefficients)}. {_FIX}."
            )
    return Regression(np.array([row for row, _ in rows]), np.array([y for _, y in rows]))


def _equation(number: int, text: str) -> tuple[list[float], float]:
    left, equals, right = text.partition("=")
    if not equals:
        raise InputError(f"equation {number}: has no `=`. {_FIX}.")
    words = re.split(r"[, \t]+", left.strip(" \t,"))
    return [_entry(number, word) for word in words], _entry(number, right.strip(" \t"))


def _entry(equation: int, word: str, largest: float = 1e6) -> float:
    # No underscores, nan or inf: float() would take them. Squares of what is larger leave the
    # range in which flows can be followed.
    value = float(word) if re.fullmatch(rf"[+-]?{_NUMBER}", word) else np.nan
    if not abs(value) <= largest:
        raise InputError(
            f"equation {equation}: must hold numbers up to {largest:g}, got {ascii(word)[:24]}. "
            f"{_FIX}."
        )
    return value
