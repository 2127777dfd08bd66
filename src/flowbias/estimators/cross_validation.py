"""The scale, and the depth if asked, by cross-validation: one path of limits per fold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.metrics import check_scoring
from sklearn.utils.validation import check_is_fitted

from flowbias.estimators.folds import check_n_jobs, check_takes_weights, folds_of, judged_on
from flowbias.estimators.inference.limit_inference import LimitInference
from flowbias.estimators.intercepts import FRAMES
from flowbias.estimators.intercepts.samples import Samples
from flowbias.estimators.regressors import LinearInterpolator
from flowbias.estimators.start import grids_of, network, read_depths
from flowbias.ground.arguments import read_tolerance
from flowbias.ground.drawing import DEPTH_COLOURS, INK, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(eq=False, repr=False, kw_only=True)
class ImplicitBiasRegressorCV(LimitInference, LinearInterpolator):
    """`ImplicitBiasRegressor` whose scale, and depth if a list is given, cross-validation chooses.

    Parameters
    ----------
    scales, log_scales : what to try; by default n_scales of them, see `implicit_bias_path`
    n_scales, eps : number and range of the default scales, for each depth
    depth : one, or a list to choose from
    shape, fit_intercept, tol : as for ImplicitBiasRegressor
    cv : number of folds (default 5), splitter, or list of splits
    scoring : name or callable; default: negative mean squared error
    n_jobs : folds at a time, as in joblib

    >>> X, y, _ = fb.datasets.sparse_regression(n=20, d=30, rng=0)
    >>> fitted = fb.estimators.ImplicitBiasRegressorCV(n_scales=3, cv=2).fit(X, y)
    >>> fitted.mse_path_.shape
    (3, 2)
    """

    _intercepts = tuple(FRAMES)

    scales: Any = None
    log_scales: Any = None
    n_scales: int = 50
    eps: float = 1e-10
    depth: Any = 2
    shape: float = 0.0
    fit_intercept: bool | str = True
    cv: Any = None
    scoring: Any = None
    n_jobs: int | None = None
    tol: float = 1e-8

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> ImplicitBiasRegressorCV:
        """Choose the scale, then find the limit at it on all data.

        sample_weight counts in the fits, in the errors within a fold and in their average.
        groups goes to the splitter. A limit that is not certified is warned of and never chosen.
        """
        read_tolerance("tol", self.tol)
        X, y, weight = self._read_data(X, y, sample_weight)
        frame = self._frame(Samples.of(X, y, weight))
        given = self.scales, self.log_scales, self.n_scales, self.eps
        grids = grids_of(frame, self.depth, self.shape, *given)
        check_n_jobs(self.n_jobs)
        folds = folds_of(self.cv, X, y, weight, groups)
        scorer = None if self.scoring is None else check_scoring(self, scoring=self.scoring)
        if scorer is not None and weight is not None:
            check_takes_weights(scorer, self.scoring)
        task = frame, self._frame, grids, self.tol, scorer, self.n_jobs
        judged = judged_on(folds, *task)
        # One depth has no axis of its own.
        depths = 0 if len(grids) == 1 else slice(None)
        self.mse_path_, self.log_scales_ = judged.mse[depths], judged.log_scales[depths]
        self.score_path_ = -self.mse_path_ if self.scoring is None else judged.score[depths]
        chosen, at = judged.best(type(self).__name__, self.scoring, self.tol)
        self.depth_ = grids[chosen].network.depth
        log_scale = float(grids[chosen].log_scales[at])
        # A mean of duals that are 0 outside their folds is a dual of all data, and inside the dual
        # domain, which is convex.
        near = judged.duals[chosen][at]
        start = grids[chosen].network.at_log_scale(log_scale)
        self._keep(frame.limits(frame.model(start), self.tol, near=near), frame.samples)
        self._keep_scale(log_scale)
        return self

    def plot(self, path: str | Path | None = None, *, ax: Axes | None = None) -> Figure:
        """The error of the parts left out against the scale; a dot at what was chosen.

        Parameters
        ----------
        path : also write the picture to this file
        ax : draw on these axes

        Returns
        -------
        the figure: for each depth the mean over folds, with its standard error as a band
        """
        check_is_fitted(self, "log_scale_")
        depths = read_depths(self.depth)
        grids, errors = np.atleast_2d(self.log_scales_), self.mse_path_
        errors = errors.reshape(len(depths), *errors.shape[-2:])

        def panel(axes: Axes) -> None:
            for depth, grid, mse in zip(depths, grids, errors, strict=True):
                x, mean = grid / np.log(10.0), mse.mean(axis=-1)
                spread = mse.std(axis=-1) / np.sqrt(max(mse.shape[-1] - 1, 1))
                colour = DEPTH_COLOURS.get(int(depth), INK)
                axes.plot(x, mean, color=colour, label=f"depth {depth:g}")
                axes.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.2, lw=0)
                if depth == self.depth_:
                    at = int(np.argmin(np.abs(grid - self.log_scale_)))
                    axes.plot(x[at], mean[at], "o", color=colour, markersize=9)
            axes.set_ylim(bottom=0.0)
            axes.set_xlabel(r"$\log_{10}$ of the scale of the start  $\alpha$")
            axes.set_ylabel("mean squared error of the parts left out")
            if len(depths) > 1:
                axes.legend(frameon=False)

        return picture(panel, path=path, ax=ax)

    def _network(self) -> Any:
        check_is_fitted(self, "log_scale_")
        return network(self.depth_, log_scale=self.log_scale_, shape=self.shape)
