"""One server for all tests that only ask it."""

import pytest

from tests.apps.explorer.running import running


@pytest.fixture(scope="session")
def server():
    with running() as started:
        yield started
