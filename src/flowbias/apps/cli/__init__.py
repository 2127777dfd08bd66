"""The command line: `flowbias`, or `python -m flowbias`.

    flowbias list                         the experiments that there are
    flowbias run NAME..., reproduce       compute figures, judge them, write a page
    flowbias limit DATA --scale 1e-3      the limit of gradient flow on your data, certified
    flowbias predict MODEL DATA           what a saved limit says of new samples
    flowbias path DATA                    the limit along the scales of the start
    flowbias stages DATA                  the path of a vanishing start, jump by jump
    flowbias cite                         BibTeX

Results go to standard output, everything else to standard error. Errors are one line; `--debug`,
anywhere on the line, adds the traceback.

Exit codes (`ExitCode`): 0 all well; 1 it ran, but a check failed or a limit is not certified; 2 bad
input or usage; 3 some tasks failed; 4 output could not be written; 5 cluster unreachable; 70 a bug;
130 interrupted.
"""

from flowbias.apps.cli.app import app, main
from flowbias.apps.cli.program import ExitCode

__all__ = ["ExitCode", "app", "main"]
