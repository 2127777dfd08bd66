"""Files as people have them: ids, dates, words, gaps, units, decimal commas; and saved models."""

import contextlib
import io
import json

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import flowbias as fb
from flowbias.apps.cli import ExitCode, app
from flowbias.apps.cli.files import read_data
from flowbias.apps.data_files.csv_table import read_table
from flowbias.apps.data_files.regression_data import FileReading, from_csv
from flowbias.ground.arguments import InputError
from tests.apps.cli.program import document, invoke, only_line

GENES, SAMPLES = 60, 40


@pytest.fixture(scope="module")
def study():
    """Two genes, age and sex decide; the rest is what files have beside that."""
    rng = np.random.default_rng(0)
    genes, age = rng.normal(size=(SAMPLES, GENES)), rng.normal(50, 12, SAMPLES)
    income, sex = rng.lognormal(10, 1, SAMPLES), rng.choice(["f", "m"], SAMPLES)
    city = rng.choice(["Paris", "Łódź", "São Paulo"], SAMPLES)
    score = 3 * genes[:, 4] - 2 * genes[:, 17] + 0.05 * age + 1.5 * (sex == "m")
    score += rng.normal(0, 0.1, SAMPLES)
    return {"genes": genes, "age": age, "income": income, "sex": sex, "city": city, "score": score}


@pytest.fixture
def messy(tmp_path, study):
    """With a byte-order mark, quoted commas, an id, dates, gaps, words and a constant."""
    names = ["PatientId", "visit", "age, years", "income", "city", "sex", "site"]
    names += [f"gène {i}" for i in range(GENES)] + ["score"]
    lines = [",".join(f'"{name}"' for name in names)]
    for i in range(SAMPLES):
        age = "" if i % 7 == 3 else f"{study['age'][i]:.4f}"
        city = "" if i == 5 else study["city"][i]
        cells = [f"{1000 + 3 * i}", f"2020-01-{i % 28 + 1:02d}", age, f"{study['income'][i]:.2f}"]
        cells += [f'"{city}"', study["sex"][i], "north", *map(repr, study["genes"][i].tolist())]
        lines.append(",".join([*cells, repr(float(study["score"][i]))]))
    file = tmp_path / "messy.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8-sig")
    return file


CLEANED = ("--drop", "PatientId", "--drop", "visit", "--impute", "mean")


def test_what_is_no_feature_is_named_at_once_with_the_options_that_drop_it(messy):
    run = invoke("limit", messy, "--scale", "1e-3")
    assert run.exit_code == ExitCode.BAD_INPUT
    told = only_line(run.stderr)
    assert "'PatientId' numbers the rows" in told
    assert "'visit' holds dates such as '2020-01-01'" in told
    assert "--drop PatientId --drop visit" in told
    run = invoke("limit", messy, "--scale", "1e-3", "--drop", "PatientId", "--drop", "visit")
    assert "line 5, column 3 (age, years): must be a finite number, got nothing" in run.stderr
    assert "--impute mean" in run.stderr


def test_the_true_features_are_found_where_raw_columns_name_others(messy):
    told = document(invoke("limit", messy, "--scale", "1e-3", *CLEANED, "--json").stdout)
    order = np.argsort(-np.abs(told["w"]))
    found = [told["names"][i] for i in order[:4]]
    assert found == ["gène 4", "gène 17", "sex=m", "age, years"]
    assert told["standardized"]
    assert told["certified"]
    assert any("units differ by a factor of" in remark for remark in told["remarks"])
    raw = document(
        invoke("limit", messy, "--scale", "1e-3", *CLEANED, "--no-standardize", "--json").stdout
    )
    order = np.argsort(-np.abs(raw["w"]))
    assert "age, years" not in [raw["names"][i] for i in order[:10]]
    assert (raw["standardized"], raw["intercept"]) == (False, None)


def test_the_command_and_the_pipeline_agree(messy):
    """The estimator in a standardizing pipeline, on the columns as the reader makes them."""
    told = document(invoke("limit", messy, "--scale", "1e-2", *CLEANED, "--json").stdout)
    raw = read_data(messy, FileReading(drop=("PatientId", "visit"), impute=True)).problem
    pipeline = make_pipeline(StandardScaler(), fb.estimators.ImplicitBiasRegressor(scale=1e-2))
    fitted = pipeline.fit(raw.X, raw.y)[-1]
    # Two ways to centre and two limits, each to the tolerance 1e-8 of the certificate.
    np.testing.assert_allclose(told["w"], fitted.coef_, atol=1e-7)
    w = np.array(told["per_unit"])
    np.testing.assert_allclose(raw.X @ w + told["intercept"], raw.y, atol=1e-7)
    # Centred rows add up to zero: a constant more in the dual changes nothing.
    dual = fitted.dual_coef_ - fitted.dual_coef_.mean()
    np.testing.assert_allclose(told["dual"], dual, atol=1e-6)


@pytest.mark.parametrize("command", [("limit", "--cv"), ("path", "--count", "5"), ("stages",)])
def test_every_command_reads_it_and_says_what_it_did(messy, command, tmp_path):
    run = invoke(command[0], messy, *command[1:], *CLEANED, "--out", tmp_path / "out.csv")
    assert run.exit_code == ExitCode.ALL_WELL, run.stderr
    words = " ".join(run.stdout.split())
    for said in (
        "messy.csv: 40 samples, 66 features",
        "y is 'score', the last column",
        "filled with the mean: 7 empty cells of 'age, years', 'city'",
        "'city' is a 0-1 column for each of 'Paris', 'São Paulo', 'Łódź'",
        "'sex' is 1 for 'm', 0 for 'f'",
        "'site': one word only, left out",
        "--no-standardize",
    ):
        assert said in words


def test_cross_validation_chooses_the_scale(messy):
    told = document(invoke("limit", messy, "--cv", *CLEANED, "--json").stdout)
    assert any("5-fold cross-validation" in remark for remark in told["remarks"])
    # Sparse data are predicted best from small starts; 1 is the kernel regime here.
    assert told["log_scale"] < -2.0
    run = invoke("limit", messy, "--cv", "--scale", "1", *CLEANED)
    assert "exactly one of them must be given, got both" in run.stderr


def test_cross_validation_needs_samples(npz):
    run = invoke("limit", npz, "--cv")
    assert "--cv: must have at least 10 samples, got 8" in only_line(run.stderr)


# --- saved models ---------------------------------------------------------------------------------


@pytest.fixture
def model(messy, tmp_path):
    file = tmp_path / "model.json"
    run = invoke("limit", messy, "--scale", "1e-3", *CLEANED, "--save", file)
    assert run.exit_code == ExitCode.ALL_WELL
    assert f"model written to {file}" in run.stdout
    return file


def numbers(run):
    header, *lines = run.stdout.splitlines()
    assert header == "prediction"
    return np.array(lines, dtype=float)


def test_a_saved_model_predicts_what_it_was_fitted_to(messy, model, study):
    run = invoke("predict", model, messy, "--impute", "mean")
    assert run.exit_code == ExitCode.ALL_WELL
    # The limit interpolates, to the tolerance of its certificate.
    np.testing.assert_allclose(numbers(run), study["score"], atol=1e-8)
    assert "root mean square error" in run.stderr


def test_columns_are_found_by_name(messy, model, tmp_path, study):
    """In another order, with others beside them, and without y."""
    lines = [
        line for line in messy.read_text(encoding="utf-8-sig").splitlines() if ",," not in line
    ]
    table = [list(row) for row in __import__("csv").reader(lines)]
    kept = [i for i in reversed(range(len(table[0]))) if table[0][i] not in ("score", "PatientId")]
    other = tmp_path / "new.csv"
    rows = [[row[i] for i in kept] for row in table if all(row)]
    other.write_text("\n".join(";".join(row) for row in rows), encoding="utf-8")
    run = invoke("predict", model, other, "--out", tmp_path / "p.csv")
    assert run.exit_code == ExitCode.ALL_WELL, run.stderr
    known = [float(row[-1]) for row in table[1:] if all(row)]
    assert len(known) > 30
    found = np.array((tmp_path / "p.csv").read_text().split()[1:], dtype=float)
    np.testing.assert_allclose(found, known, atol=1e-8)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("Paris", "Rome", "(city): must be one of 'Paris', 'São Paulo', 'Łódź', got 'Rome'"),
        ('"income"', '"Income"', "must have a column 'income', as the data of the model do."),
        ('"gène 7"', '"gene 7"', "Did you mean it by 'gene 7'?"),
    ],
)
def test_what_the_model_does_not_know(messy, model, old, new, says):
    text = messy.read_text(encoding="utf-8-sig").replace(old, new)
    run = CliRunner().invoke(
        app, ["predict", str(model), "-", "--impute", "mean"], input=text.encode()
    )
    assert run.exit_code == ExitCode.BAD_INPUT
    assert says in only_line(run.stderr)
    assert "standard input" in run.stderr


@pytest.mark.parametrize("text", ["", "{}", "[1]", "null", '{"kind": "flowbias model 1"}', "\xff"])
def test_a_file_that_is_no_model(tmp_path, messy, text):
    file = tmp_path / "model.json"
    file.write_text(text)
    run = invoke("predict", file, messy)
    assert run.exit_code == ExitCode.BAD_INPUT
    assert "must be a model that `flowbias limit DATA --save model.json` wrote" in run.stderr


def test_models_of_unnamed_columns(npz, tmp_path, data):
    model, plain = tmp_path / "m.json", tmp_path / "plain.csv"
    assert invoke("limit", npz, "--scale", "0.1", "--save", model).exit_code == 0
    np.testing.assert_allclose(numbers(invoke("predict", model, npz)), data.y, atol=1e-8)
    np.savetxt(plain, data.X, delimiter=",", fmt="%.17g")
    np.testing.assert_allclose(numbers(invoke("predict", model, plain)), data.y, atol=1e-8)
    plain.write_text("1,2,3\n")
    run = invoke("predict", model, plain)
    assert "must have 20 columns" in only_line(run.stderr)
    plain.write_text("a,b,c\n1,2,3\n")
    told = only_line(invoke("predict", model, plain).stderr)
    assert "which had no names, got some. Leave out the first line." in told


def test_a_model_of_named_columns_asks_for_a_header(tmp_path, csv, data):
    model, plain = tmp_path / "m.json", tmp_path / "plain.csv"
    assert invoke("limit", csv, "--scale", "0.1", "--save", model).exit_code == 0
    np.savetxt(plain, data.X, delimiter=",", fmt="%.17g")
    told = only_line(invoke("predict", model, plain).stderr)
    assert "got no names. Write them into a first line, among others 'gene 0'." in told


def test_a_model_is_json_with_what_it_stands_for(model):
    saved = json.loads(model.read_text())
    assert saved["target"] == "score"
    assert len(saved["coefficients"]) == len(saved["features"]) == 66
    assert saved["certified"]
    assert {"name": "sex", "words": ["f", "m"]}.items() <= saved["columns"][3].items()


# --- small files ----------------------------------------------------------------------------------


def read(text, **options):
    return from_csv(io.BytesIO(text.encode()), FileReading(**options))


@pytest.mark.parametrize(
    ("text", "options", "X"),
    [
        ("a;b;y\n1,5;2;3\n-,5;4;5\n", {}, [[1.5, 2], [-0.5, 4]]),
        ('"a";"y"\n"1,5e3";2\n"2";3\n', {}, [[1500], [2]]),
        ("sep=;\na;y\n1;2\n3;4\n", {}, [[1], [3]]),
        (",a,y\n0,1,2\n1,3,4\n", {"drop": ("1",)}, [[1], [3]]),
        ("a,b,y,\n1,2,3,\n4,5,7,\n", {"drop": ("4",)}, [[1, 2], [4, 5]]),
        ("a,b,y\nyes,1,2\nno,3,4\nyes,5,1\n", {}, [[1, 1], [0, 3], [1, 5]]),
        ("a,b,y\n1,,3\nNA,5,7\n4,6,7\n", {"impute": True}, [[1, 5.5], [2.5, 5], [4, 6]]),
        ("s,y\nu,1\nv,2\n,3\nv,4\n", {"impute": True}, [[0], [1], [2 / 3], [1]]),
        ("1,3\n2,9\n3,1\n4,4\n5,0\n", {"keep": ("1",)}, [[1], [2], [3], [4], [5]]),
        ("id,a,y\n7,1,2\n9,3,4\n", {"keep": ("id",)}, [[7, 1], [9, 3]]),
        ("ÄÖ,日本,y\n1,2,3\n4,5,7\n", {}, [[1, 2], [4, 5]]),
        ("a,b,y\n1,2,3\n4,5,NA\n6,7,9\n", {"labelled": True}, [[1, 2], [6, 7]]),
        ("1,2,3\n4,5,7\n", {"target": "1"}, [[2, 3], [5, 7]]),
        ("2,b\n1,2\n4,5\n", {"target": "2"}, [[2], [5]]),
    ],
)
def test_small_files_that_are_read(text, options, X):
    np.testing.assert_array_equal(read(text, **options).problem.X, X)


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("a;y\n1.234,5;2\n2.000,1;3\n", {}, "must be a finite number, got '1.234,5'"),
        ("a;y\n1 000;2\n2 000;3\n", {}, "must be a finite number, got '1 000'"),
        ("a,b,y\n$5,1,2\n$6,3,4\n", {}, "must be a finite number, got '$5'"),
        ("a,b,y\n5%,1,2\n6%,3,4\n5%,5,1\n", {}, "must be a finite number, got '5%'"),
        ("1,3\n2,9\n3,1\n4,4\n5,0\n", {}, "column 1 numbers the rows"),
        ("user_id,a,y\n7,1,2\n9,3,4\n", {}, "'user_id' numbers the rows"),
        ("Unnamed: 0,a,y\n7,1,2\n9,3,4\n", {}, "--drop 'Unnamed: 0'"),
        ("n,a,y\nx,1,2\nu,3,4\nv,3,4\n", {}, "'n' has 3 different words in 3 rows"),
        ("t,a,y\n1/2/20,1,2\n3.4.2020,3,4\n", {}, "'t' holds dates"),
        ("a,b,y\n,1,2\n,3,4\n", {"impute": True}, "'a' has no entries"),
        ("a,y\n1,2\n,3\n", {}, "line 3, column 1 (a): must be a finite number, got nothing"),
        ("s,y\nu,2\n,3\nu,4\nv,4\n", {}, "(s): must be one of 'u', 'v', got ''"),
        ("a,y\n1,2\n3,\n", {"impute": True}, "leave the line out, which has no y"),
        ("a,b,y\n1,2,x\n3,5,z\n", {}, "(y): must be a finite number, got 'x'"),
        ("a,y\n1,2\n3,4\n", {"drop": ("a",)}, "--drop: must leave a column for y"),
        ("ab,b,y\n1,2,3\n3,4,8\n", {"drop": ("AB",)}, "must be the name of a column, got 'AB'"),
        ("ab,b,y\n1,2,3\n3,4,8\n", {"drop": ("AB",)}, "Did you mean 'ab'?"),
        ("u,v,y\n1,2,3\n3,4,8\n", {"drop": ("mass",)}, "There are 'u', 'v', 'y'."),
        ("1,2,3\n3,4,8\n", {"drop": ("a",)}, "The first line names none: count them from 1."),
        ("a,a,y\n1,2,3\n3,4,8\n", {}, "got 'a' twice. Rename one, or leave it out: --drop 2."),
        ("a,y\n1,2,3\n2,4,8\n", {}, "(in R: write.csv(..., row.names = FALSE))"),
        ("my study\na,y\n1,2\n3,4\n", {}, "Leave out what stands above line 2, which has 2."),
        ("a b y\n1 2 3\n", {}, "Separate columns by commas, semicolons or tabs."),
        ("a,b,y\n5%,1,2\n6%,3,4\n", {}, "Write plain numbers, without units"),
        ("a,b c,y\n1,2,3\n4,low,8\n", {}, "or leave the column out (--drop 'b c')"),
        ("a,b,y\n1,2,yes\n3,5,no\n", {}, "of two classes call one 0 and the other 1"),
        ("a,y\n1,2\n3,\n", {}, "(--labelled)"),
        ("a,y\n1,\n3,\n", {"labelled": True}, "--labelled: must leave a line"),
        ("a,b,y\n1,2,3\n3,4,8\n", {"keep": ("c",)}, "--keep: must be the name of a column"),
        ("a,b,y\n1,2,3\n", {"drop": ("b",), "target": "b"}, "--target: must not be left out, got"),
        ("a,b,y\n1,2,3\n", {"drop": ("b",), "keep": ("b",)}, "--keep: must not be left out, got"),
        ("a,b,y\n,1,2\n,3,4\n", {"keep": ("a",)}, "no feature: --drop a."),
        ("a,b,y\n1,2,3\n", {"intercept": True}, "--intercept: must have at least 2 samples"),
        ("a,y\n1,3\n1,4\n", {"intercept": True}, "X: must have a nonzero entry"),
    ],
)
def test_small_files_that_are_not(text, options, says):
    with pytest.raises(InputError) as refusal:
        read(text, **options)
    assert says in str(refusal.value)


def test_words_of_unknown_meaning_are_not_read_as_gaps():
    """A range is a word, not a marked number and not a date."""
    data = read("age,y\n18-25,1\n26-60,2\n18-25,3\n61-99,4\n26-60,5\n18-25,6\n")
    assert data.names == ["age=18-25", "age=26-60", "age=61-99"]


def test_lines_without_y_are_left_out_of_the_fit_and_predicted(tmp_path):
    """y = 2 a + b: with two equations for two numbers the limit is the truth."""
    file, model = tmp_path / "half.csv", tmp_path / "m.json"
    file.write_text("a,b,y\n1,0,2\n3,4,\n0,1,1\n5,6,NA\n")
    fit = invoke("limit", file, "--scale", "0.1", "--labelled", "--save", model)
    assert fit.exit_code == ExitCode.ALL_WELL, fit.stderr
    assert "2 samples" in fit.stdout
    assert "left out: 2 lines without y" in fit.stdout
    run = invoke("predict", model, file)
    # To the tolerance of the certificate.
    np.testing.assert_allclose(numbers(run), [2, 10, 1, 16], atol=1e-8)
    assert "over 2 samples" in run.stderr
    file.write_text("a,b,y\n3,4,\n")
    none = invoke("predict", model, file)
    np.testing.assert_allclose(numbers(none), [10], atol=1e-8)
    assert none.stderr == ""


@pytest.mark.parametrize("intercept", [None, False, True])
@pytest.mark.parametrize("mean", [0.0, 5.0])
def test_an_intercept_that_is_missed_is_offered(intercept, mean):
    """Unless one said whether to have it."""
    rows = "".join(f"{i % 3 - 1},{i % 5 - 2},{mean + (-1) ** i}\n" for i in range(20))
    told = read("a,b,y\n" + rows, standardize=None, intercept=intercept).remarks
    offered = any("y has mean 5, and no intercept is fitted; --intercept" in one for one in told)
    assert offered == (intercept is None and mean == 5.0)


def test_an_intercept_without_standardizing(csv, data):
    told = document(invoke("limit", csv, "--scale", "0.1", "--intercept", "--json").stdout)
    fitted = fb.estimators.ImplicitBiasRegressor(scale=0.1).fit(data.X, data.y)
    np.testing.assert_allclose(told["w"], fitted.coef_, atol=1e-7)
    assert told["intercept"] == pytest.approx(fitted.intercept_, abs=1e-7)
    assert told["w"] == told["per_unit"]
    assert (told["samples"], len(told["dual"])) == (8, 8)


def test_units_are_only_compared_where_samples_can_tell(tmp_path):
    """Two rows may differ by any factor and mean nothing by it."""
    few = read("a,b,y\n1,1000,3\n2,3000,4\n", standardize=None, intercept=None)
    assert not few.is_standardized
    rows = "".join(f"{i % 3},{100 * (i % 5) + i},{i}\n" for i in range(10))
    many = read("a,b,y\n" + rows, standardize=None, intercept=None)
    assert many.is_standardized
    np.testing.assert_allclose(many.units.scaled.std(axis=0), 1.0)
    without = read("a,b,y\n" + rows, standardize=None, intercept=False)
    np.testing.assert_allclose(np.square(without.problem.X).mean(axis=0), 1.0)


def test_a_file_that_was_read_is_left_to_who_opened_it():
    for text in (b"x,y\n1,2\n3,4\n", b"\xff\xfe"):
        content = io.BytesIO(text)
        with contextlib.suppress(InputError):
            read_table(content)
        assert not content.closed
