"""What must be true of the checks of every figure, on its smoke table.

class TestSelection(Conformance):
    experiment = rich_limit.EXPERIMENT
    corruptions = [({"certified"}, higher("error_bound", 1e-4)), ...]
    values = ("error_bound", ...)
"""

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import pytest

from flowbias.experiments._base import Experiment
from flowbias.experiments.table import Table
from tests.experiments.judging import (
    Corruption,
    alone_in,
    failing,
    mostly_nan,
    named,
    passes_without,
    smoke_table,
)


class Conformance:
    """Sound tables pass, spoiled ones fail where they are spoiled, and NaN never passes."""

    experiment: ClassVar[Experiment]
    #: Which checks notice what. Some mistakes cannot be made in one place alone.
    corruptions: ClassVar[Sequence[tuple[set[str], Corruption]]]
    #: Columns that nothing passes without, nor with one value of three.
    values: ClassVar[Sequence[str]] = ()
    #: Columns of so few values, or used in so few rows, that only losing all of them shows.
    whole: ClassVar[Sequence[str]] = ()

    @pytest.fixture
    def table(self) -> Table:
        return smoke_table(self.experiment)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "corrupt" in metafunc.fixturenames:
            metafunc.parametrize(("names", "corrupt"), self.corruptions, ids=named)
        if "column" in metafunc.fixturenames:
            metafunc.parametrize("column", (*self.values, *self.whole))

    def test_the_sound_table_passes(self, table):
        assert failing(self.experiment, table) == set()

    def test_checks_notice_what_they_are_there_for(self, table, names, corrupt):
        assert failing(self.experiment, corrupt(table)) == names

    def test_every_check_has_a_corruption_of_its_own(self, table):
        names = Counter(check.name for check in self.experiment.check(table))
        assert set(names.values()) == {1}
        assert set(names) == alone_in(self.corruptions)

    def test_nan_does_not_pass(self, table, column):
        if column in self.values:
            assert failing(self.experiment, mostly_nan(table, column))
        assert not passes_without(self.experiment, table, column)
