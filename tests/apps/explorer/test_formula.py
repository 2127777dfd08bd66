"""Formulas and equations that readers type: made of known words alone, and never run."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flowbias.apps.explorer import formula, typed_parametrization
from flowbias.apps.explorer.formula import (
    FUNCTIONS,
    LONGEST,
    SCALARS,
    VECTORS,
    parse,
    read_equations,
)
from flowbias.apps.explorer.typed_parametrization import TypedFunction
from flowbias.ground.arguments import InputError

NUMPY = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
}

ATOMS = st.sampled_from(["u", "v", "p", "q", "a", "b", "c", "2", "0.5", "3e-1", ".25"])


def _grown(inside):
    signs = st.sampled_from(["+", "-", "*", "/"])
    exponents = st.sampled_from(["2", "3", "-1", "+2", "(-2)", "1.5", "(3)"])
    return st.one_of(
        st.builds("{} {} {}".format, inside, signs, inside),
        st.builds("({})".format, inside),
        st.builds("-{}".format, inside),
        st.builds("({})^{}".format, inside, exponents),
        st.builds("{}({})".format, st.sampled_from(sorted(NUMPY)), inside),
    )


FORMULAS = st.recursive(ATOMS, _grown, max_leaves=8).map("u + {}".format)


# What other readers of expressions have been broken by, and what Python alone would take.
HOSTILE = (
    "u.__class__.__bases__[0].__subclasses__()",
    "(u).__class__",
    "u.real + 0",
    "getattr(u, v)",
    "__builtins__",
    "__u__",
    "u.__init__.__globals__",
    "print(u)",
    "exp(u, v)",
    "exp(*u)",
    "exp(x=u)",
    "exp()",
    "(exp)(u)",
    "exp(exp)",
    "exp",
    "[u for u in v]",
    "(u for u in v)",
    "{u: v}",
    "u if v else p",
    "u or v",
    "not u",
    "u < v",
    "u is v",
    "u in v",
    "~u",
    "u & v",
    "u | v",
    "u << 2",
    "lambda u: u",
    "(u := v)",
    "f'{u}'",
    "f'{__import__(\"os\")}'*u",
    "b'u'",
    "yield u",
    "await u",
    "import os",
    "u; import os",
    "u\n__import__('os')",
    "u # comment",
    "u\\\nv",
    "10**10**10*u",
    "9**9**9**9*u",
    "u**1000000000",
    "u**(10**10)",
    "(2^12)^(12)^12*u",
    "1e308*1e308*u",
    "u*(0/0)",
    "0x7fffffff*u",
    "0b1*u",
    "0o7*u",
    "1_0*u",
    "1j*u",
    "2j",
    "u*inf",
    "u*nan",
    "True*u",
    "None",
    "...",
    "u[0]",
    "u[::-1]",
    "(" * 90 + "u" + ")" * 90,
    "-" * 150 + "u",
    "-(" * 60 + "u" + ")" * 60,
    "exp(" * 45 + "u" + ")" * 15,
    "ｕ*2",
    "u*２",
    "𝐮",
    "е*u",
    "u\u200b",
    "u\u202e*v",
    "u\u00a0*v",
    "u＋v",
    "u∗v",
    "ｅxp(u)",
    "ᵉxp(u)",
    "\x00",
    "u\x00",
    "\ud800u",
)


def tree_or_refusal(text):
    """The tree and no words, or no tree and why."""
    try:
        return parse(text), ""
    except InputError as error:
        return None, str(error)


def parsed(text):
    """The tree, or None where a constant in it is no finite number or the text is too long."""
    tree, why = tree_or_refusal(text)
    assert tree is not None or "no finite number" in why or str(LONGEST) in why
    return tree


def by_python(text, names):
    """What Python's own grammar makes of it: only here, only of what the strategy wrote."""
    with np.errstate(all="ignore"):
        return eval(text.replace("^", "**"), {"__builtins__": {}}, {**NUMPY, **names})


@given(
    text=st.one_of(st.text(max_size=40), st.text("uva()^*/+-.eE0123456789 xplogs_[]'", max_size=60))
)
@example("1e999*u")
@example("9^9^9^9*u")
@example("(" * 100 + "u" + ")" * 100)
@example("-" * 190 + "u")
@example("u" * 500)
@example("exp" * 30)
@example("")
@example("   ")
@example("u^1e999")
@example("u*0/0")
@example("log(0)*u")
@example("(-8)^0.5*u")
@example("u^")
@example("u^(")
@example("\0u")
@example("\ud800")
@example("1" * 200)
def test_any_text_parses_or_is_refused_in_words(text):
    tree, why = tree_or_refusal(text)
    if tree is None:
        assert why.startswith("formula")
        assert why.isprintable()
        assert len(why) < 400
    else:
        assert tree.names <= {*VECTORS, *SCALARS}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("__import__('os')", "column 12: `'` has no meaning"),
        ("__import__(u)", "column 1: unknown name `__import__`"),
        ("u + __import__", "column 5: unknown name `__import__`"),
        ("u.real", "column 2: `.` has no meaning"),
        ("u.__class__", "column 2"),
        ("().__class__", "column 3: `.` has no meaning"),
        ("open(u)", "column 1: unknown name `open`"),
        ("eval(u)", "unknown name `eval`"),
        ("exec(u)", "unknown name `exec`"),
        ("lambda: u", "column 7: `:` has no meaning"),
        ("u if u else v", "column 3"),
        ("u[0]", "column 2: `[` has no meaning"),
        ("'u'", "column 1"),
        ('"u"', "column 1"),
        ("u; v", "column 2"),
        ("u = v", "column 3"),
        ("u, v", "column 2"),
        ("u\nv", "column 2"),
        ("{u}", "column 1"),
        ("u @ v", "column 3"),
        ("u // v", "column 4: expected a number, a name"),
        ("u % v", "column 3"),
        ("u == v", "column 3"),
        ("ｕ", "column 1"),
        ("u²", "column 2: `²` has no meaning here. Write ^2"),
        ("u − v", "Write -"),
        ("１*u", "column 1"),
        ("1_000*u", "column 2: write a sign before"),
        ("0x10*u", "column 2"),
        ("2u", "column 2: write a sign before `u`"),
        ("u v", "column 3: write a sign before `v`"),
        ("u(v)", "column 2: write a sign before"),
        ("exp", "`exp` is a function: write exp(u)"),
        ("exp u", "is a function"),
        ("exp(u", "column 6: expected a sign or `)`, got the end"),
        ("u)", "column 2: `)` closes nothing"),
        ("u +", "column 4: expected a number, a name or `(`, got the end"),
        ("", "got the end"),
        ("u^v", "an exponent must be a number"),
        ("u^13", "between -12 and 12, got 13"),
        ("u^-13", "between -12 and 12"),
        ("9^9^9^9*u", "needs parentheses"),
        ("u^2^2", "column 4: a power of a power needs parentheses"),
        ("1e999*u", "column 1: 1e999 is too large"),
        ("u*(1/0)", "column 5: this is no finite number"),
        ("exp(1000)*u", "column 1: this is no finite number"),
        ("a*b", "needs one of the vectors u, v, p, q"),
        ("2", "needs one of the vectors"),
        ("x", "Names are u, v, p, q (vectors) and a, b, c (scalars); functions are exp"),
        ("(" * 31 + "u" + ")" * 31, "more than 30 levels"),
        ("u" + " " * LONGEST, "at most 200 characters"),
    ],
)
def test_what_is_no_formula_is_refused_with_its_place(text, says):
    with pytest.raises(InputError) as refusal:
        parse(text)
    assert says in str(refusal.value)


@given(text=FORMULAS)
@example("u - (v - p)")
@example("u / (v * p)")
@example("-(u + v) * -2 - -(a * u)")
@example("((u^2)^-3)^0.5")
def test_a_tree_is_written_so_that_it_reads_back(text):
    tree = parsed(text)
    if tree is not None and len(tree.text) <= LONGEST:
        again = parse(tree.text)
        assert again == tree
        assert ast.dump(again._tree) == ast.dump(tree._tree)


@given(text=FORMULAS, seed=st.integers(0, 2**16))
@example("u + -u^2", 0)
@example("u + 2 - 3 - 4 * v / 2 / 5", 0)
@example("u + -2^2 * v", 0)
@example("u + (-v)^2", 0)
@example("u + --v", 0)
@example("u + 2^-1 * v", 0)
def test_values_are_those_of_python_with_numpy(text, seed):
    torch = pytest.importorskip("torch")
    tree = parsed(text)
    if tree is None:
        return
    rng = np.random.default_rng(seed)
    names = {name: rng.uniform(0.5, 1.5, 3) for name in VECTORS}
    # NumPy's numbers: Python's own have complex powers, and errors where these are infinite.
    names |= {name: np.float64(rng.uniform(0.5, 1.5)) for name in SCALARS}
    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in names.items()}
    found = np.broadcast_to(tree.value(tensors).numpy(), 3)
    expected = np.broadcast_to(by_python(text, names), 3)
    # Subtraction may cancel digits: compare where torch's own rounding of the parts decides.
    small = np.isfinite(expected) & (np.abs(expected) < 1e6)
    np.testing.assert_allclose(found[small], expected[small], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", sorted(NUMPY))
def test_functions_of_constants_are_folded_to_their_value(name):
    tree = parse(f"{name}(0.7) * u")
    assert tree.value({"u": 1.0}) == pytest.approx(NUMPY[name](0.7), rel=1e-14)


def test_every_function_of_the_grammar_is_compared_with_numpy():
    assert set(FUNCTIONS) == set(NUMPY)


@given(text=FORMULAS)
def test_python_source_is_made_of_known_words_only(text):
    tree = parsed(text)
    if tree is None:
        return
    words = {node.id for node in ast.walk(ast.parse(tree.python)) if isinstance(node, ast.Name)}
    assert words <= {*VECTORS, *SCALARS, "torch"}


def test_source_computes_what_the_tree_does():
    torch = pytest.importorskip("torch")
    function = TypedFunction.of("a*u^2 - tanh(v)/c + 2", 3)
    assert function.parameter_names == ("u1", "u2", "u3", "v1", "v2", "v3", "a", "c")
    assert not function.separates
    names = {"torch": torch}
    exec(function.source(), names)
    theta = torch.linspace(0.3, 1.4, 8, dtype=torch.float64)
    torch.testing.assert_close(function(theta), names["F"](theta), rtol=1e-14, atol=0.0)
    u, v, (a, c) = theta[:3], theta[3:6], theta[6:]
    torch.testing.assert_close(function(theta), a * u**2 - v.tanh() / c + 2, rtol=1e-14, atol=0.0)


def test_the_start_is_the_scale_and_its_ratio():
    function = TypedFunction.of("a*u + v", 2)
    np.testing.assert_array_equal(function.start(2.0, 0.5), [2.0, 2.0, 1.0, 1.0, 1.0])
    assert TypedFunction.of("u*v", 2).separates


def test_nothing_here_can_run_text():
    banned = {"eval", "exec", "compile", "__import__", "getattr", "sympify", "literal_eval"}
    for module in (formula, typed_parametrization):
        tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
        called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
        by_name = {node.id for node in called if isinstance(node, ast.Name)}
        assert not by_name & banned, module
        of_ast = {
            node.attr
            for node in called
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "ast"
        }
        # What reads, walks and writes a tree, or makes a node of one.
        assert not of_ast & banned, module
        imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        assert not imported & {"importlib", "builtins", "sympy"}, module


@given(text=st.one_of(st.text(max_size=40), st.sampled_from(HOSTILE), FORMULAS))
@example(" 01 * tanh( u )**2 - .5e1^-1 ")
def test_python_is_asked_about_known_words_only(text):
    """Whatever is typed: what Python's grammar gets is written anew from our own tokens."""
    try:
        tokens = formula._tokens(text)
        formula._require_order(tokens)
    except InputError:
        return
    asked, _ = formula._for_python(tokens)
    words = "|".join([*FUNCTIONS, *VECTORS, *SCALARS])
    assert re.fullmatch(rf"(?:{words}|[0-9]+(?:\.[0-9]+)?(?:e[+-][0-9]+)?|[-+*/()])+", asked)


@pytest.mark.parametrize("text", HOSTILE)
def test_what_attacks_try_is_refused(text):
    tree, why = tree_or_refusal(text)
    assert tree is None
    assert why.startswith("formula")
    assert why.isprintable()


@pytest.mark.parametrize(
    ("text", "X", "y"),
    [
        ("1, 2 = 1", [[1, 2]], [1]),
        ("1 2 = 1; -0.5 ,1e1 = .5;", [[1, 2], [-0.5, 10]], [1, 0.5]),
        (" 1\t2,3=4 ", [[1, 2, 3]], [4]),
    ],
)
def test_equations(text, X, y):
    problem = read_equations(text)
    np.testing.assert_array_equal(problem.X, X)
    np.testing.assert_array_equal(problem.y, y)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must be 1 to 5, got 0"),
        ("1, 2", "equation 1: has no `=`"),
        ("1, 2 = ", "equation 1: must hold numbers"),
        ("1, nan = 1", "got 'nan'"),
        ("1, inf = 1", "got 'inf'"),
        ("1, 1_0 = 1", "got '1_0'"),
        ("1, 1e999 = 1", "got '1e999'"),
        ("1, 2 = 1e7", "numbers up to 1e+06"),
        ("1, 2 = 1 = 2", "must hold numbers"),
        ("1, ２ = 1", "must hold numbers"),
        ("1 = 1", "must have 2 or 3 coefficients, got 1"),
        ("1,2,3,4 = 1", "got 4"),
        ("1, 2 = 1; 1 = 1", "equation 2: must have 2 coefficients"),
        ("1,2=1;" * 6, "must be 1 to 5, got 6"),
        ("0, 0 = 1", "X: must have a nonzero entry"),
        ("1, 2 = " + "1" * 200, "at most 200 characters"),
        ("__import__('os'), 1 = 1", "must hold numbers"),
    ],
)
def test_what_is_no_equation(text, says):
    with pytest.raises(InputError) as refusal:
        read_equations(text)
    assert says in str(refusal.value)


@given(text=st.one_of(st.text(max_size=40), st.text("0123456789.,;=-+eE \t", max_size=60)))
def test_any_equations_are_read_or_refused(text):
    try:
        problem = read_equations(text)
    except InputError:
        return
    assert np.isfinite(problem.X).all()
    assert 2 <= problem.X.shape[1] <= 3
