"""From text to tree, by recursive descent. Nothing is ever handed to Python as code.

    sum      = product {("+" | "-") product}
    product  = signed {("*" | "/") signed}
    signed   = ("+" | "-") signed | power
    power    = atom ["^" exponent]
    exponent = ["+" | "-"] number | "(" ["+" | "-"] number ")"
    atom     = number | name | function "(" sum ")" | "(" sum ")"

Signs bind as in Python: -u^2 is -(u^2). Constants are folded as they are read, so that what is no
finite number is refused with its column.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from flowbias.explorer.formula.tokens import (
    Kind,
    Token,
    number_of,
    refused,
    shortened,
    tokens_of,
)
from flowbias.explorer.formula.tree import (
    FUNCTIONS,
    Call,
    Difference,
    Name,
    Negative,
    Node,
    Number,
    Power,
    Product,
    Quotient,
    Sum,
)

#: One entry per coordinate of the predictor.
VECTORS = ("u", "v", "p", "q")
#: One number that all coordinates share.
SCALARS = ("a", "b", "c")
#: Exponents in size: what goes beyond leaves the double range within a few steps of a flow.
LARGEST_EXPONENT = 12.0
# Parentheses, functions and signs inside one another.
_DEEPEST = 30

_CONSTANT: dict[type[Node], Callable[[float, float], float]] = {
    Sum: lambda x, y: x + y,
    Difference: lambda x, y: x - y,
    Product: lambda x, y: x * y,
    Quotient: lambda x, y: x / y,
}
_CONSTANT_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "tanh": math.tanh,
    "sigmoid": lambda x: 0.5 * (1.0 + math.tanh(0.5 * x)),
    "sin": math.sin,
    "cos": math.cos,
}
_SUMS: dict[str, type[Sum | Difference]] = {"+": Sum, "-": Difference}
_PRODUCTS: dict[str, type[Product | Quotient]] = {"*": Product, "/": Quotient}


def parse(text: str) -> Node:
    """The tree of a formula; InputError names the column and the fix where it is none."""
    reader = _Reader(tokens_of(text))
    tree = reader.sum(0)
    reader.expect_end()
    if not set(tree.names()) & set(VECTORS):
        raise refused(1, f"needs one of the vectors {', '.join(VECTORS)}: w has an entry for each")
    return tree


class _Reader:
    """The tokens and how far they have been read."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._next = 0

    def sum(self, depth: int) -> Node:
        left = self.product(depth)
        while (sign := self._peek()).text in _SUMS:
            self._take()
            left = _pair(_SUMS[sign.text], left, self.product(depth), sign.column)
        return left

    def product(self, depth: int) -> Node:
        left = self.signed(depth)
        while (sign := self._peek()).text in _PRODUCTS:
            self._take()
            left = _pair(_PRODUCTS[sign.text], left, self.signed(depth), sign.column)
        return left

    def signed(self, depth: int) -> Node:
        token = self._peek()
        if depth > _DEEPEST:
            raise refused(token.column, f"more than {_DEEPEST} levels inside one another")
        if token.text not in _SUMS:
            return self.power(depth)
        self._take()
        of = self.signed(depth + 1)
        if token.text == "+":
            return of
        return Number(-of.number) if isinstance(of, Number) else Negative(of)

    def power(self, depth: int) -> Node:
        base = self.atom(depth)
        if self._peek().text != "^":
            return base
        sign = self._take()
        exponent = self._exponent()
        if self._peek().text == "^":
            raise refused(self._peek().column, "a power of a power needs parentheses: (u^2)^3")
        if isinstance(base, Number):
            return _folded(sign.column, lambda: math.pow(base.number, exponent))
        return Power(base, exponent)

    def atom(self, depth: int) -> Node:
        token = self._take()
        if token.kind is Kind.NUMBER:
            return Number(number_of(token))
        if token.text == "(":
            return self._closed(depth)
        if token.kind is not Kind.NAME:
            got = f"`{token.text}`" if token.text else "the end"
            raise refused(token.column, f"expected a number, a name or `(`, got {got}")
        if token.text in FUNCTIONS:
            return self._call(token, depth)
        if token.text in (*VECTORS, *SCALARS):
            return Name(token.text)
        raise refused(token.column, f"unknown name `{shortened(token.text)}`. {_known()}")

    def expect_end(self) -> None:
        token = self._peek()
        if token.kind is Kind.END:
            return
        if token.text == ")":
            raise refused(token.column, "`)` closes nothing")
        raise refused(token.column, f"write a sign before `{shortened(token.text)}`, e.g. * or +")

    def _call(self, token: Token, depth: int) -> Node:
        if self._peek().text != "(":
            raise refused(token.column, f"`{token.text}` is a function: write {token.text}(u)")
        self._take()
        of = self._closed(depth)
        if isinstance(of, Number):
            number = of.number
            return _folded(token.column, lambda: _CONSTANT_FUNCTIONS[token.text](number))
        return Call(token.text, of)

    def _closed(self, depth: int) -> Node:
        """What stands in parentheses, the first of which has been read."""
        inside = self.sum(depth + 1)
        self._close()
        return inside

    def _close(self) -> None:
        token = self._peek()
        if token.text != ")":
            got = f"`{shortened(token.text)}`" if token.text else "the end"
            raise refused(token.column, f"expected a sign or `)`, got {got}")
        self._take()

    def _exponent(self) -> float:
        opened = self._peek().text == "("
        if opened:
            self._take()
        negative = self._peek().text == "-"
        if self._peek().text in _SUMS:
            self._take()
        token = self._take()
        if token.kind is not Kind.NUMBER:
            raise refused(token.column, "an exponent must be a number, e.g. u^3, u^-1 or u^(0.5)")
        size = number_of(token)
        if size > LARGEST_EXPONENT:
            raise refused(
                token.column,
                f"an exponent must lie between -{LARGEST_EXPONENT:g} and {LARGEST_EXPONENT:g}, "
                f"got {shortened(token.text)}",
            )
        if opened:
            self._close()
        return -size if negative else size

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._peek()
        # The last token says that there are no more; it is never passed.
        self._next += token.kind is not Kind.END
        return token


def _pair(
    kind: type[Sum | Difference | Product | Quotient], left: Node, right: Node, column: int
) -> Node:
    if isinstance(left, Number) and isinstance(right, Number):
        x, y = left.number, right.number
        return _folded(column, lambda: _CONSTANT[kind](x, y))
    return kind(left, right)


def _folded(column: int, compute: Callable[[], float]) -> Number:
    """A constant, if it is a finite number."""
    try:
        value = compute()
    except (ArithmeticError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise refused(column, "this is no finite number")
    return Number(value)


def _known() -> str:
    return (
        f"Names are {', '.join(VECTORS)} (vectors) and {', '.join(SCALARS)} (scalars); functions "
        f"are {', '.join(FUNCTIONS)}"
    )
