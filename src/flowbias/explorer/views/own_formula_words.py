"""What is said of a typed formula: its verdict, where the flow goes, and what was given up."""

from __future__ import annotations

from flowbias.derive.verdict import Verdict
from flowbias.explorer.views.own_formula_scene import MOST_NODES, OwnFormulaScene

_MEANS = {
    Verdict.MIRROR_FLOW: "Gradient flow minimizes a potential of w alone.",
    Verdict.WARPED: "Gradient flow minimizes a potential of w alone, at a changing speed.",
    Verdict.NONE: "No potential of w alone explains where it goes; the flow can only be followed.",
    Verdict.INCONCLUSIVE: "The tests do not decide whether there is a potential.",
}


def words_of(scene: OwnFormulaScene) -> str:
    """The verdict first."""
    paragraphs = [
        f"w = `{scene.function.formula.text}`: {_verdict(scene)}",
        f"{_limit(scene)} {_picture(scene)}",
        _given_up(scene),
        _evidence(scene),
    ]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def _verdict(scene: OwnFormulaScene) -> str:
    report = scene.report
    if report is None:
        return "**no verdict**, its tests took too long. The flow is followed all the same."
    return f"**{report.verdict.value}**. {_MEANS[report.verdict]} Because {report.reason}."


def _limit(scene: OwnFormulaScene) -> str:
    place = ", ".join(f"{value:.4g}" for value in scene.end)
    where = scene.extremes.words(scene.end)
    if scene.solution is not None and scene.solution.status.ok:
        certificate = scene.solution.certificate
        return (
            f"The limit is ({place}), {scene.solution.status.name}: feasibility "
            f"{certificate.feasibility:.0e}, gap {certificate.gap:.0e}. {where}"
        )
    residual, last = float(scene.trajectory.residual[-1]), float(scene.trajectory.t[-1])
    if not scene.fits:
        return (
            f"The flow does **not** come to fit these equations: it could be followed to time "
            f"{last:.3g}, where it is at ({place}) with a relative residual of {residual:.1e}."
        )
    followed = (
        f"The flow, followed to a residual of {residual:.0e}, ends at ({place}): an integration, "
        "not a certificate."
    )
    if scene.solution is not None:
        followed += f" A certified limit was not found: {scene.solution.message}."
    return f"{followed} {where}"


def _given_up(scene: OwnFormulaScene) -> str:
    if not scene.unfinished:
        return ""
    return (
        f"Not finished within {MOST_NODES} evaluations of parts of the formula: "
        f"{', '.join(scene.unfinished)}."
    )


def _evidence(scene: OwnFormulaScene) -> str:
    if scene.report is None:
        return ""
    tests = "\n".join(
        f"* {item.name}: {item.answer}; {item.summary}" for item in scene.report.evidence
    )
    return f"Tests made at the start and at random points that the flow can reach:\n\n{tests}"


def _picture(scene: OwnFormulaScene) -> str:
    if scene.levels:
        return ""
    if scene.problem.X.shape[1] > 2:
        return "With three coefficients no level sets are drawn."
    if not scene.function.separates:
        return "Coordinates share a parameter: level sets would take too long and are not drawn."
    return "The potential could not be followed far enough for level sets."
