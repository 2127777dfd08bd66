"""Results as HTML: well formed, escaped, without scripts or colours, with their numbers."""

import inspect
import pkgutil
from dataclasses import replace
from html.parser import HTMLParser
from importlib import import_module

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import flowbias as fb
from flowbias.ground.html import coefficients, facts, power_of_ten, some, table
from tests.notebooks.results import HOSTILE, all_results

NAMES = (
    *("solution", "projected", "certificate", "refused certificate", "path", "trajectory"),
    *("stages", "stage certificate"),
    *("leaky trajectory", "leaky limit", "descent", "lifted solution", "neuron sum"),
    "matrix solution",
    *(
        "spectral certificate",
        "fit certificate",
        "lifted trajectory",
        "one column",
        "lifted descent",
        "imbalance",
    ),
    *("upper claim", "equal claim", "failed claim", "report", "diagnosis", "diagnosis of a module"),
    *("prediction", "sweep", "monitor", "history", "training", "copies", "record"),
    *(
        "incomplete record",
        "uncertainty",
        "refits",
        "jackknife",
        "coefficients",
        "kernel regime",
        "no kernel regime",
    ),
    *("wide regime", "linearized flow", "grad distance"),
)
TAGS = {"div", "p", "table", "caption", "thead", "tbody", "tr", "th", "td"}


class Page(HTMLParser):
    """Reads strictly: every tag known and closed in order; keeps the text of each cell."""

    def __init__(self, text):
        super().__init__()
        self.open, self.cells, self.captions, self.styles = [], [], [], []
        self.rows = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS
        assert {name for name, _ in attrs} <= {"style", "scope"}
        self.styles += [value for name, value in attrs if name == "style"]
        self.open.append(tag)
        if tag == "tr":
            self.rows.append(0)
        if tag in {"td", "th", "caption", "p"}:
            self.cells.append("")
        if tag in {"td", "th"}:
            self.rows[-1] += 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        # Text outside of cells, captions and notes would be lost on a reader of tables.
        assert self.open[-1] in {"td", "th", "caption", "p"}
        self.cells[-1] += data

    def handle_comment(self, data):
        pytest.fail(f"a comment: {data}")


@pytest.fixture(scope="module")
def pages():
    results = all_results()
    assert set(results) == set(NAMES)
    return {name: Page(result._repr_html_()) for name, result in results.items()}


@pytest.mark.parametrize("name", NAMES)
def test_is_well_formed(pages, name):
    assert pages[name].cells[0] or pages[name].cells[1]


@pytest.mark.parametrize("name", NAMES)
def test_colours_are_left_to_the_notebook(pages, name):
    for style in pages[name].styles:
        declared = dict(part.split(":") for part in style.replace(" ", "").split(";"))
        assert "background" not in style
        assert declared.get("color", "inherit") == "inherit"


@pytest.mark.parametrize("name", NAMES)
def test_screen_readers_get_a_caption(name):
    assert "<caption" in all_results()[name]._repr_html_()


def test_every_result_that_shows_itself_is_tested_here_and_draws_itself_too():
    modules = [
        import_module(found.name)
        for found in pkgutil.walk_packages(fb.__path__, "flowbias.")
        if ".explorer" not in found.name and not found.name.endswith("__main__")
    ]
    classes = {
        value
        for module in modules
        for value in vars(module).values()
        if inspect.isclass(value) and value.__module__.startswith("flowbias.")
    }
    shows = {c for c in classes if _is_ours(c, "_repr_html_") and not inspect.isabstract(c)}
    shows = {c for c in shows if not getattr(c, "_is_protocol", False)}
    assert shows == {type(result) for result in all_results().values()}
    assert {c.__name__ for c in shows if not _is_ours(c, "plot")} == set()


def _is_ours(kind, name):
    """Whether a class of flowbias defines it: scikit-learn's regressors show themselves, too."""
    return any(
        name in vars(base) for base in kind.__mro__ if base.__module__.startswith("flowbias.")
    )


# --- the numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["solution", "projected"])
def test_a_solution_shows_status_norms_and_certificate(pages, name):
    solution, cells = all_results()[name], pages[name].cells
    certificate = solution.certificate
    assert solution.message in cells
    assert f"Solution: {solution.status.name}" in cells
    assert f"{np.abs(solution.w).sum():.6g}" in cells
    assert f"{np.linalg.norm(solution.w):.6g}" in cells
    for value in (certificate.feasibility, certificate.gap, certificate.error_bound):
        assert f"{value:.1e}" in cells


def test_a_certificate_says_which_measure_fails(pages):
    cells = pages["refused certificate"].cells
    assert "Certificate: NOT ok" in cells
    at = cells.index("feasibility")
    assert cells[at + 3] == "NO"
    fine = pages["certificate"].cells
    assert "Certificate: ok" in fine
    assert fine[fine.index("feasibility") + 3] == "yes"
    assert "NO" not in fine


def test_what_a_certificate_shows_is_what_it_judges():
    counts = {"certificate": 4, "refused certificate": 4, "spectral certificate": 3}
    for name, count in {**counts, "fit certificate": 1}.items():
        certificate = all_results()[name]
        judged = [m for m in certificate.measures if m.allowed is not None]
        assert certificate.ok == all(m.value <= m.allowed for m in judged)
        assert len(judged) == count


def test_a_certificate_of_nan_is_not_ok():
    nan = float("nan")
    certificate = fb.Certificate(nan, nan, nan, np.inf, 1e-10, (nan, nan))
    assert not certificate.ok
    assert "yes" not in Page(certificate._repr_html_()).cells


def test_a_path_shows_its_ends(pages):
    path, cells = all_results()["path"], pages["path"].cells
    assert "LimitPath: 25 scales; 12 of 25 shown" in cells
    for i in (0, -1):
        assert f"{path.log_scales[i]:.4g}" in cells
        assert f"{np.abs(path.w[i]).sum():.6g}" in cells
    assert cells.count("CERTIFIED") == 12


@pytest.mark.parametrize("name", ["trajectory", "leaky trajectory", "lifted trajectory"])
def test_a_trajectory_shows_its_course(pages, name):
    flow, text = all_results()[name], " ".join(pages[name].cells)
    assert flow.message in text
    assert f"{flow.loss[0]:.4g} at the first, {flow.loss[-1]:.4g} at the last" in text
    assert f"{len(flow.t)}, from {flow.t[0]:.4g} to {flow.t[-1]:.4g}" in text


def test_a_leaky_neuron_shows_its_switches(pages):
    flow = all_results()["leaky trajectory"]
    assert flow.slides
    assert f"{len(flow.switches)}, held at a kink" in pages["leaky trajectory"].cells


@pytest.mark.parametrize("name", ["descent", "lifted descent"])
def test_a_descent_shows_its_course(pages, name):
    descent, cells = all_results()[name], pages[name].cells
    assert f"{descent.steps}" in cells
    assert f"{descent.residual[-1]:.6g}" in cells


@pytest.mark.parametrize("name", ["lifted solution", "matrix solution"])
def test_a_matrix_shows_its_norms(pages, name):
    solution, cells = all_results()[name], pages[name].cells
    values = np.linalg.svd(solution.M, compute_uv=False)
    assert "5 x 4" in cells
    assert f"{values.sum():.6g}" in cells
    assert f"{np.sqrt(np.sum(solution.M**2)):.6g}" in cells


def test_claims_show_both_numbers_and_the_verdict(pages):
    cells = pages["failed claim"].cells
    assert {"wrong: FAILS", "1", ">= 2", "min2021, Theorem 1"} <= set(cells)
    assert "a bound: holds" in pages["upper claim"].cells


def test_an_imbalance_shows_its_level(pages):
    imbalance = all_results()["imbalance"]
    shown = pages["imbalance"].cells
    for value in (imbalance.level, imbalance.spread_plus, imbalance.eigenvalues[0]):
        assert f"{value:.6g}" in shown


def test_inference_shows_its_numbers(pages):
    errors, refits = all_results()["uncertainty"], all_results()["refits"]
    for value in (errors.sigma, errors.carriers, errors.gain, errors.w_error.max()):
        assert f"{value:.6g}" in pages["uncertainty"].cells
    cells = pages["refits"].cells
    assert f"{np.linalg.norm(refits.residuals) / np.sqrt(8):.6g}" in cells
    assert cells[cells.index("factorizations") + 1] == f"{sum(refits.factorizations)}"


def test_regimes_say_whether_their_theorem_applies(pages):
    regime, wide = all_results()["kernel regime"], all_results()["wide regime"]
    assert "KernelRegime: Theorem 9 applies" in pages["kernel regime"].cells
    for value in (regime.mu, regime.gamma, regime.largest_error, regime.movement_bound):
        assert f"{value:.6g}" in pages["kernel regime"].cells
    refused = pages["no kernel regime"].cells
    assert "KernelRegime: Theorem 9 does NOT apply" in refused
    assert "weights move at most" not in refused
    assert "WideRegime: width suffices" in pages["wide regime"].cells
    assert f"{wide.least_width:.6g}" in pages["wide regime"].cells
    narrow = Page(replace(wide, width=int(wide.least_width) - 1)._repr_html_())
    assert "WideRegime: width too small" in narrow.cells


def test_a_regime_holds_where_its_theorem_does_not_refuse():
    regime = all_results()["kernel regime"]
    edge = regime.largest_error
    for error, holds in ((edge, True), (np.nextafter(edge, np.inf), False)):
        assert replace(regime, error=error).holds is holds
    with pytest.raises(fb.InputError, match=r"y\(0\) - y\*"):
        replace(regime, error=2.0 * edge).required()
    assert not all_results()["no kernel regime"].holds
    with pytest.raises(fb.InputError, match="Widen"):
        all_results()["no kernel regime"].required()


def test_kernels_show_their_numbers(pages):
    flow, distance = all_results()["linearized flow"], all_results()["grad distance"]
    rates = flow.eigenvalues[flow.learnable]
    for value in (flow.loss(0.0), flow.loss(), rates.max(), rates.min()):
        assert f"{value:.6g}" in pages["linearized flow"].cells
    for value in (distance.overall, distance.per_sample.max()):
        assert f"{value:.6g}" in pages["grad distance"].cells


def test_a_report_shows_all_its_evidence(pages):
    report, cells = all_results()["report"], pages["report"].cells
    assert report.reason in cells
    for item in report.evidence:
        assert {item.name, item.summary} <= set(cells)


@pytest.mark.parametrize("name", ["diagnosis", "diagnosis of a module"])
def test_a_diagnosis_shows_its_measures(pages, name):
    diagnosis, cells = all_results()[name], pages[name].cells
    assert diagnosis.explanation in cells
    for value in diagnosis.measures().values():
        assert value is None or f"{value:.6g}" in cells


def test_regime_tables_show_every_point(pages):
    results = all_results()
    assert [f"{s:.4g}" for s in results["sweep"].scales] == pages["sweep"].cells[7::6]
    steps = {f"{record.step}" for record in results["history"].records}
    assert {f"{results['history'].records[-1].step}"} <= steps & set(pages["history"].cells)
    assert pages["monitor"].cells == pages["history"].cells
    assert f"{results['prediction'].feature_change:.6g}" in pages["prediction"].cells


def test_training_shows_its_losses(pages):
    training, copies = all_results()["training"], all_results()["copies"]
    assert f"{training.losses[-1]:.6g}" in pages["training"].cells
    for loss in copies.losses:
        assert f"{loss:.3e}" in pages["copies"].cells


def test_a_record_shows_every_check_and_failure(pages):
    cells = pages["record"].cells
    assert "toy, smoke: does NOT hold" in cells
    assert cells[cells.index("rises") + 1 :][:3] == ["yes", HOSTILE, "from 1 to 2"]
    assert cells[cells.index("falls") + 1] == "NO"
    assert "toy, smoke: INCOMPLETE" in pages["incomplete record"].cells
    assert "ValueError: no" in pages["incomplete record"].cells


# --- the table itself ----------------------------------------------------------------------------

# Line ends are read back as one kind, and a NUL not at all, by every HTML parser.
words = st.text(st.characters(blacklist_characters="\r\x00", blacklist_categories=("Cs",)))


@example(HOSTILE, HOSTILE, [(HOSTILE, HOSTILE)])
@given(words, words, st.lists(st.tuples(words, words), max_size=4))
def test_any_text_is_read_back_as_it_was(caption, note, rows):
    page = Page(table(caption, rows, note=note))
    expected = [*([note] if note else []), caption, *(cell for row in rows for cell in row)]
    assert page.cells == expected


def test_hostile_text_stays_text(pages):
    assert HOSTILE in pages["upper claim"].cells
    assert "<script" not in all_results()["upper claim"]._repr_html_()


def test_facts_leave_out_what_is_not_known():
    assert Page(facts("c", {"a": None, "b": 1.23456789})).cells == ["c", "b", "1.23457"]


@given(st.integers(0, 10**6))
def test_some_of_a_list(count):
    chosen = some(count)
    assert len(chosen) == min(count, 12)
    assert chosen == sorted(set(chosen))
    if count:
        assert (chosen[0], chosen[-1]) == (0, count - 1)


def test_coefficients_are_counted_against_the_largest():
    shown = coefficients(np.array([-3.0, 2.9e-6, 3.1e-6, 0.0]))
    assert shown["coefficients"] == "4"
    assert shown["above 1e-6 of the largest"] == "2"
    assert coefficients(np.zeros(3))["above 1e-6 of the largest"] == "0"


def test_numbers_end_in_one_line():
    page = Page(table("c", [("a", "1.5e-3", "word", "inf")]))
    assert page.styles[1:] == [
        *("text-align: left", "text-align: right", "text-align: left", "text-align: right")
    ]


def test_what_is_still_on_a_cluster_is_not_computed():
    class Elsewhere:
        def __array__(self, *_):
            pytest.fail("showing fetched the predictor")

    solution = replace(all_results()["solution"], w=Elsewhere())
    path = replace(all_results()["path"], solutions=(solution,), log_scales=np.zeros(1))
    assert "not computed yet" in Page(solution._repr_html_()).cells
    assert "not computed yet" in Page(path._repr_html_()).cells


@pytest.mark.parametrize(
    ("exponent", "words"),
    [(-3.0, "1e-3"), (-2.5, "3.2e-3"), (-2.001, "1e-2"), (0.0, "1e0"), (-1000.0, "1e-1000")],
)
def test_a_scale_is_written_by_its_power_of_ten(exponent, words):
    # A logarithm that rounding has moved is written the same.
    for rounded in (exponent, np.nextafter(exponent, -np.inf), np.nextafter(exponent, np.inf)):
        assert power_of_ten(rounded) == words
