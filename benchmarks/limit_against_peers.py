"""How long does each way to the limit take to come within 1e-8 of it, and how near does it get?

Tied depth 2, n = 100, d = 1000, noise 0.01. The true limit is solved to 30 digits beforehand. An
iterative peer is stopped, in its favour, the moment it is within the target; where it never is,
the table says what it reached and why it ended.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np
from _common import Report, interleaved, parser, problem, progress, relative_error
from _peers import PEERS, RICH_PEERS, Race
from tests.exact import exact_limit

import flowbias as fb

ALPHAS = (10.0, 1.0, 0.1, 0.01, 1e-3, 1e-6, 1e-30, 1e-300)
# From here on the l1 minimizer is worth comparing with.
RICH = 1e-30
OURS = "flowbias.limit"
SOLVING = "  without its certificate"


def ours(race: Race, solving: list[float]) -> Race:
    """The library, called as a user would; `solving` collects its time before the certificate."""
    solution = fb.limit(fb.DiagonalNet(2, race.alpha), race.X, race.y, throw=False)
    race.error = relative_error(solution.w, race.reference)
    reached = race.error <= race.target and solution.certificate.ok
    race.note = "reached" if reached else "stopped short"
    solving.append(solution.stats.seconds)
    return race


def compare(alpha: float, options: Any) -> tuple[list[dict[str, Any]], str]:
    """One row per solver, and what is known about the reference."""
    X, y, _ = problem()
    model = fb.DiagonalNet(2, alpha)
    progress(f"alpha {alpha:g}: the limit to 30 digits")
    solution = fb.limit(model, X, y, throw=False)
    reference = exact_limit(model, X, y, solution.dual, dps=30).astype(float)

    def race() -> Race:
        return Race(X, y, alpha, reference, options.target, options.budget)

    peers = {**PEERS, **(RICH_PEERS if alpha <= RICH else {})}
    solving: list[float] = []
    runs = {OURS: lambda: ours(race(), solving)}
    for name, peer in peers.items():
        runs[name] = lambda peer=peer: race().run(peer)
    watch = lambda name: progress(f"alpha {alpha:g}: {name}")  # noqa: E731
    seconds, results = interleaved(runs, options.repeats, once_above=1.0, watch=watch)
    # The certificate is most of an easy solve, and no peer gives one: both times are shown.
    seconds = {OURS: seconds[OURS], SOLVING: median(solving), **seconds}
    results = {OURS: results[OURS], SOLVING: results[OURS], **results}
    rows = [
        {
            "solver": name,
            "seconds": took,
            "times ours": took / seconds[OURS],
            "relative error": results[name].error,
            "ended": results[name].note,
        }
        for name, took in seconds.items()
    ]
    bound = solution.certificate.error_bound / np.linalg.norm(solution.w)
    note = f"our certificate: {solution.message}; error bound {bound:.1e} (relative)"
    return rows, note


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--budget", type=float, default=20.0, help="seconds per peer and scale")
    arguments.add_argument("--repeats", type=int, default=5, help="runs of what takes below 1 s")
    arguments.add_argument("--target", type=float, default=1e-8, help="relative error to reach")
    arguments.add_argument("--alphas", type=float, nargs="+", default=ALPHAS)
    options = arguments.parse_args()
    report = Report(options.json)
    summary: dict[str, dict[str, Any]] = {}
    for alpha in options.alphas:
        rows, note = compare(alpha, options)
        report.table(f"alpha = {alpha:g}", rows, note)
        for row in rows:
            took = f"{row['seconds']:.3g}" if row["ended"] == "reached" else "no"
            line = summary.setdefault(row["solver"], {"solver": row["solver"]})
            line[f"{alpha:g}"] = took
    report.table(
        f"seconds to a relative error of {options.target:g}, by alpha",
        list(summary.values()),
        f"no: not reached, in {options.budget:g} s or at all",
    )
    report.finish()


if __name__ == "__main__":
    main()
