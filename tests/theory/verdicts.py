"""What claims say: their verdicts, and why they say nothing."""

import re

from flowbias.ground.arguments import InputError
from flowbias.theory import Verdict


def as_tuple(claims):
    return claims if isinstance(claims, tuple) else (claims,)


def kind(claim):
    """The name of a claim without the numbers of its instance."""
    return re.sub(r"[-+]?\d[-+.e\d]*", "#", claim.name)


def failures(claims):
    return [claim for claim in claims if claim.verdict is Verdict.FAILS]


def why_nothing(call, *args):
    """Why a call says nothing: the reason of its claims, all silent, or the text of an error."""
    try:
        claims = as_tuple(call(*args))
    except InputError as error:
        return str(error)
    assert all(claim.verdict is Verdict.SILENT and not claim for claim in claims)
    return claims[0].reason
