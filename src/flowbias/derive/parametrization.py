"""A predictor w = F(theta) written as a torch function, with its derivatives in float64.

    J = dF/dtheta,    M = J J^T,    [grad F_i, grad F_j] = Hess F_j grad F_i - Hess F_i grad F_j

`Parametrization(F, theta0)` is a model for `fb.flow` and what everything in `flowbias.derive` works
on. NumPy arrays go in and come out; torch is loaded when the first one is made.

Statements about the flow have to hold where it can get. Whatever the data, theta moves along
combinations of the gradient fields grad F_i. Following one random combination after another from
theta0 stays on that orbit and leaves no special position of theta0 in place, so that what holds at
a few such points holds on an open part of the orbit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flowbias.derive.smoothness import require_smooth
from flowbias.derive.unit_time import integrate
from flowbias.ground.arguments import InputError, as_array, read_count, shown, takes
from flowbias.ground.torch import require_torch
from flowbias.ground.typing import FloatArray
from flowbias.models._base import Model, Parameters

# Numbers that all second derivatives of F together may take: 400 MB.
LARGEST_HESSIANS = 50_000_000
# Singular values of J with unit rows that count as zero: derivatives are exact up to rounding, so
# what is left of a zero is a few ulps times the cancellation inside F.
RANK_TOLERANCE = 1e-11


class Parametrization(Model):
    """w = F(theta) started at theta0.

    Parameters
    ----------
    F : takes a torch tensor of theta0's shape and returns one of shape (d,), both float64
    theta0 : the start
    names : one per parameter, in the order of theta0.ravel(), for readable output
    afford : asked before F is differentiated at all, once p and d are known; raises if it is too
        large

    >>> model = fb.derive.Parametrization(lambda th: th[:2] ** 2 - th[2:] ** 2, np.full(4, 0.5))
    >>> fb.flow(model, [[1.0, 2.0]], [1.0]).w[-1].round(3)
    array([0.189, 0.405])
    """

    def __init__(
        self,
        F: Callable[[Any], Any],
        theta0: Any,
        names: Sequence[str] | None = None,
        *,
        afford: Callable[[Parametrization], None] | None = None,
    ) -> None:
        if not callable(F):
            raise InputError(
                f"F: must be a function of a torch tensor, got {type(F).__name__}. "
                "Pass e.g. lambda theta: theta[:3] ** 2 - theta[3:] ** 2."
            )
        self._torch = require_torch()
        start, self._shape = read_start(theta0)
        self._F = F
        self._last: tuple[FloatArray, FloatArray] | None = None
        #: theta0 as one vector
        self.start: FloatArray = start
        self.start.setflags(write=False)
        self.p = int(start.size)
        self.names: tuple[str, ...] = read_names(names, self.p)
        #: predictors; 0 until F has been called once
        self.d = 0
        #: F(theta0)
        self.initial: FloatArray = self._first_call()
        self.d = int(self.initial.size)
        if afford is not None:
            if not takes(afford, 1):
                raise InputError(
                    f"afford: must be a function of the parametrization, got {shown(afford)}. "
                    "Leave it out: any size will do then."
                )
            afford(self)
        require_smooth(self)

    def started_at(self, theta: FloatArray) -> Parametrization:
        """The same F from another start, given as one vector."""
        return Parametrization(self._F, theta.reshape(self._shape), self.names)

    def __repr__(self) -> str:
        name = getattr(self._F, "__name__", type(self._F).__name__)
        return f"{type(self).__name__}({name}, {self.p} parameters -> {self.d} predictors)"

    # --- F and its derivatives -------------------------------------------------------------------

    def torch_function(self, flat: Any) -> Any:
        """F as a function of one flat tensor: what torch.func transforms."""
        try:
            w = self._F(flat.reshape(self._shape))
        except Exception as error:  # F is anybody's code: whatever it raises is about F
            raise InputError(
                f"F: must take a torch tensor of shape {self._shape} and return one, got "
                f"{type(error).__name__}: {error}. Write it with torch functions only (NumPy "
                "functions cannot be differentiated), and branch on no values."
            ) from error
        if self.d and tuple(w.shape) != (self.d,):
            raise InputError(
                f"F: must return {self.d} numbers everywhere, as at theta0, got shape "
                f"{tuple(w.shape)} elsewhere. Let the shape depend on no value."
            )
        return w

    def tensor(self, theta: FloatArray) -> Any:
        """A parameter vector as a float64 tensor of its own."""
        return self._torch.tensor(np.asarray(theta, dtype=np.float64).ravel())

    def predictor_at(self, theta: FloatArray) -> FloatArray:
        """F(theta), (d,)."""
        with self._torch.no_grad():
            return np.array(self.torch_function(self.tensor(theta)).numpy())

    def pulled_back(self, theta: FloatArray, z: FloatArray) -> FloatArray:
        """J(theta)^T z = sum_i z_i grad F_i(theta), (p,): one backward pass."""
        point = self.tensor(theta).requires_grad_()
        w = self.torch_function(point)
        (gradient,) = self._torch.autograd.grad(w, point, self.tensor(z))
        return np.array(gradient.numpy())

    def jacobian(self, theta: FloatArray) -> FloatArray:
        """dF/dtheta, (d, p)."""
        # Metric, warp and lift ask for it at the same point, one after the other.
        last = self._last
        if last is None or not np.array_equal(theta, last[0]):
            transform = self._torch.func.jacrev(self.torch_function)
            # Through a name of its own: another thread may ask at another point meanwhile.
            last = self._last = np.array(theta), self._transformed(transform, theta)
        return last[1].copy()

    def hessians(self, theta: FloatArray) -> FloatArray:
        """Hess F_i for every i, (d, p, p)."""
        self._require_room_for_hessians()
        func = self._torch.func
        transform = func.jacfwd(func.jacrev(self.torch_function))
        return np.array(self._transformed(transform, theta))

    def metric(self, theta: FloatArray) -> FloatArray:
        """M = J J^T, (d, d): w' = -c M X^T r along gradient flow."""
        J = self.jacobian(theta)
        return J @ J.T

    def brackets(self, theta: FloatArray) -> FloatArray:
        """[grad F_i, grad F_j] = Hess F_j grad F_i - Hess F_i grad F_j, (d, d, p)."""
        moved = np.einsum("jqp,ip->ijq", self.hessians(theta), self.jacobian(theta))
        return np.asarray(moved - np.swapaxes(moved, 0, 1))

    def flow_along(self, theta: FloatArray, z: FloatArray, time: float = 1.0) -> FloatArray:
        """theta after `time` under theta' = sum_i z_i grad F_i(theta); NaN if it ends before.

        A flow ends where it blows up and at a kink of F. Local error 1e-13 per step; a negative
        time goes back.
        """
        theta, z = np.asarray(theta, dtype=np.float64).ravel(), np.asarray(z, dtype=np.float64)
        if time == 0.0 or not z.any():
            return theta.copy()
        through = float(time) * z
        # The tightest tolerance that SciPy's integrators accept is 100 eps = 2.2e-14.
        end = integrate(lambda _, state: self.pulled_back(state, through), theta, 1e-13)
        return np.full(self.p, np.nan) if end is None else end

    def require_regular(self) -> None:
        """Refuse a start where J is rank-deficient: there M has no inverse, so no H and no dual."""
        zero = zero_directions(self.jacobian(self.start), self.start, self.initial)
        if len(zero) == 0:
            return
        named = "; ".join(combination(row, [f"w{i + 1}" for i in range(self.d)]) for row in zero)
        why = self._why_singular(len(zero))
        raise InputError(
            f"theta0: must be a point where dF/dtheta has rank {self.d}, got rank "
            f"{self.d - len(zero)}: the metric J J^T is not invertible there, and to first order "
            f"nothing moves along {named}. {why}"
        )

    def _why_singular(self, missing: int) -> str:
        """What is wrong with the start, or with F: told apart by a start elsewhere."""
        if self.p < self.d:
            return f"{self.p} parameters cannot move {self.d} predictors independently."
        size = np.abs(self.start).max(initial=0.0) or 1.0
        near = self.start + 0.1 * size * np.random.default_rng(0).standard_normal(self.p)
        J, w = self.jacobian(near), self.predictor_at(near)
        tied = np.isfinite(J).all() and len(zero_directions(J, near, w)) >= missing
        if not tied:
            return "A parameter that starts at 0 is the usual cause: start at a generic point."
        return (
            "Nor does it elsewhere: F ties its predictors to each other, as softmax does, whose "
            f"outputs add up to 1. Return {self.d - missing} of them, which say the same."
        )

    # --- a model for fb.flow ---------------------------------------------------------------------

    def initial_parameters(self) -> Parameters:
        return (self.start,)

    def predictor(self, parameters: Parameters) -> FloatArray:
        return self.predictor_at(parameters[0])

    def parameter_gradient(self, parameters: Parameters, g: FloatArray) -> Parameters:
        return (self.pulled_back(parameters[0], g),)

    # --- checks ----------------------------------------------------------------------------------

    def _first_call(self) -> FloatArray:
        """F(theta0), if it is a differentiable float64 vector of finite numbers."""
        torch = self._torch
        point = self.tensor(self.start).requires_grad_()
        w = self.torch_function(point)
        if not isinstance(w, torch.Tensor):
            raise InputError(
                f"F: must return a torch tensor, got {type(w).__name__}. Write it with torch "
                "functions (NumPy's cannot be differentiated); join numbers by torch.stack."
            )
        shape = tuple(w.shape)
        if len(shape) != 1 or shape[0] == 0:
            raise InputError(
                f"F: must return a vector of predictors, shape (d,), got shape {shape}. "
                "Return w.reshape(-1); for one predictor a tensor of shape (1,)."
            )
        if w.dtype != torch.float64:
            raise InputError(
                f"F: must return float64, got {w.dtype}. It is handed float64: convert nothing "
                "inside, and make constants with dtype=torch.float64."
            )
        values = np.array(w.numpy(force=True))
        if not np.isfinite(values).all():
            i = int(np.flatnonzero(~np.isfinite(values))[0])
            raise InputError(
                f"F: must be finite at theta0, got {values[i]} for w{i + 1}. "
                "Start inside the domain of F."
            )
        if not w.requires_grad:
            raise InputError(
                "F: must depend differentiably on theta, got a result that torch cannot trace back "
                "to it. Avoid .detach(), .item(), torch.tensor(...) of entries, and constants."
            )
        return values

    def _transformed(self, transform: Callable[[Any], Any], theta: FloatArray) -> FloatArray:
        try:
            result = transform(self.tensor(theta))
        except RuntimeError as error:
            raise InputError(
                f"F: must be a function that torch.func can transform, got: {error}. Replace "
                "in-place assignments by torch.stack or torch.cat, and branch on no values."
            ) from error
        return np.asarray(result.numpy(force=True))

    def _require_room_for_hessians(self) -> None:
        cost = self.d * self.p * self.p
        if cost > LARGEST_HESSIANS:
            raise InputError(
                f"theta0: must be small enough for all second derivatives of F, {self.d} "
                f"predictors x {self.p}^2 = {cost:.1e} numbers ({8e-9 * cost:.1f} GB), got more "
                f"than the {LARGEST_HESSIANS:.0e} allowed. Study a smaller instance of the same F."
            )


def zero_directions(J: FloatArray, theta: FloatArray, w: FloatArray) -> FloatArray:
    """Rows c with c^T J = 0: combinations of predictors that stand still.

    Judged with rows of J scaled to one length, so that predictors of different size are no
    deficiency; a row counts as zero when moving theta by its own size would only move a last digit.
    """
    lengths = np.linalg.norm(J, axis=1)
    moving = lengths * np.abs(theta).max() > RANK_TOLERANCE * np.abs(w)
    unit = np.where(moving, lengths, 1.0)
    scaled = np.where(moving[:, None], J / unit[:, None], 0.0)
    left, values, _ = np.linalg.svd(scaled, full_matrices=True)
    values = np.pad(values, (0, len(J) - len(values)))
    return np.asarray(left[:, values <= RANK_TOLERANCE].T / unit)


def combination(coefficients: FloatArray, names: Sequence[str]) -> str:
    """A linear combination in words, largest coefficient scaled to 1: `w1 - 0.5*w3`."""
    scaled = coefficients / coefficients[np.argmax(np.abs(coefficients))]
    text = ""
    for c, name in zip(scaled, names, strict=True):
        if abs(c) < 1e-8:
            continue
        sign = (" - " if text else "-") if c < 0 else (" + " if text else "")
        text += sign + (name if abs(abs(c) - 1.0) < 1e-8 else f"{abs(c):.4g}*{name}")
    return text


def read_start(theta0: Any) -> tuple[FloatArray, tuple[int, ...]]:
    """theta0 as one float64 vector, and its shape."""
    # A tensor that wants gradients refuses to become an array; lists must not become float32.
    try:
        given = as_array(theta0)
    except ValueError as error:
        raise InputError(
            f"theta0: must be a regular array of numbers, got {error}. Pass one flat vector of all "
            "parameters and cut it up inside F."
        ) from error
    if given.dtype.kind not in "buif":
        raise InputError(
            f"theta0: must be an array of real numbers, got dtype {given.dtype}. Pass one flat "
            "vector of all parameters (complex ones as real and imaginary parts)."
        )
    start = np.array(given, dtype=np.float64)
    if start.size == 0:
        raise InputError("theta0: must not be empty, got no parameters. Pass where F starts.")
    if not np.isfinite(start).all():
        i = int(np.flatnonzero(~np.isfinite(start.ravel()))[0])
        raise InputError(
            f"theta0: must be finite, got {start.ravel()[i]} at position {i}. Start elsewhere."
        )
    return start.ravel(), tuple(given.shape)


def read_names(names: Sequence[str] | None, p: int) -> tuple[str, ...]:
    """One name per parameter, all different."""
    if names is None:
        return tuple(f"th{i + 1}" for i in range(p))
    given = _words(names)
    if len(given) != p or len(set(given)) != p:
        raise InputError(
            f"names: must be {p} different names, one per entry of theta0, got {list(given)}. "
            "Leave it out for th1, th2, ..."
        )
    return given


def _words(names: Any) -> tuple[str, ...]:
    try:
        return tuple(map(str, names))
    except TypeError:  # a number, or an array that is one
        return (shown(names),)


# A start or a field that is halved so often and still leads nowhere is given up.
_MOST_HALVINGS = 40


def as_parametrization(
    F: Callable[[Any], Any] | Parametrization,
    theta: Any = None,
    names: Any = None,
    afford: Callable[[Parametrization], None] | None = None,
) -> Parametrization:
    """What the functions of this package work on, from F and theta or as it is.

    `afford` refuses a size that is too large, before anything is paid for.
    """
    if not isinstance(F, Parametrization):
        if theta is None:
            raise InputError(
                "theta: must be given with a function F, got None. "
                "Pass the start, or a Parametrization(F, theta0) in place of F."
            )
        return Parametrization(F, theta, names, afford=afford)
    if theta is None and names is None:
        if afford is not None:
            afford(F)
        return F
    start = F.start if theta is None else theta
    names = F.names if names is None else names
    return Parametrization(F.torch_function, np.ravel(start), names, afford=afford)


def reachable_points(
    model: Parametrization, count: int, rng: np.random.Generator
) -> list[FloatArray]:
    """theta0 and `count` more points, each reached from the one before along a random field."""
    read_count("points", count, "0 looks at theta0 alone.", at_least=0)
    points = [np.array(model.start)]
    for _ in range(count):
        points.append(_moved(model, points[-1], rng))
    return points


def generic_point(
    model: Parametrization, rng: np.random.Generator, spread: float = 0.1
) -> FloatArray:
    """A point near theta0 on no special orbit: `spread` times its size away in all directions.

    Where F or its derivatives do not exist there, nearer.
    """
    unit = parameter_unit(model)
    for _ in range(_MOST_HALVINGS):
        point = model.start + spread * unit * rng.standard_normal(model.p)
        if np.isfinite(model.jacobian(point)).all():
            return np.asarray(point)
        spread *= 0.5
    raise InputError(
        f"F: must be differentiable around theta0, got no finite derivative near {model.start}. "
        "Start inside the domain of F."
    )


def parameter_unit(model: Parametrization) -> float:
    """Root mean square of theta0, 1 at the origin."""
    return float(np.sqrt(np.mean(model.start**2))) or 1.0


def random_field(model: Parametrization, theta: FloatArray, rng: np.random.Generator) -> FloatArray:
    """z for which sum_i z_i grad F_i moves theta by a fraction of its size in unit time."""
    z = rng.standard_normal(model.d)
    velocity = model.pulled_back(theta, z)
    speed = float(np.linalg.norm(velocity))
    if speed == 0.0:
        # All gradients vanish here: the flow stands still, whatever z.
        return z
    size = float(np.linalg.norm(theta)) or 1.0
    probe = 1e-6 * size / speed  # of one difference quotient, which only sets a time scale
    change = float(np.linalg.norm(model.pulled_back(theta + probe * velocity, z) - velocity))
    # Unit time is to be well before the field has grown by its own size: fields of degree 3 and
    # more blow up soon after.
    growth = change / probe / speed
    # Far enough to leave a special point, near enough for fields that blow up in finite time.
    return z * min(0.4 * size / speed, 0.5 / growth if growth > 0.0 else np.inf)


def _moved(model: Parametrization, theta: FloatArray, rng: np.random.Generator) -> FloatArray:
    z = random_field(model, theta, rng)
    for _ in range(_MOST_HALVINGS):
        ahead = model.flow_along(theta, z)
        if np.isfinite(ahead).all() and np.isfinite(model.jacobian(ahead)).all():
            return ahead
        z = 0.5 * z
    raise InputError(
        f"F: must have gradient flows that exist for some time, got none from theta = {theta} "
        f"along z = {z}. Start inside the domain of F."
    )
