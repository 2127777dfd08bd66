"""Width and imbalance again, with twice as many outputs.  [min2021, Figures 4 and 5]

Section 5.1 of the paper has m = 5 outputs (`fig02`), its appendix A.1 m = 10.
"""

from __future__ import annotations

from flowbias.experiments._base import Experiment
from flowbias.experiments.min import fig02
from flowbias.theory import Reference

EXPERIMENT = Experiment(
    name="min-fig5",
    title="Wide starts are imbalanced, with ten outputs",
    reference=Reference("min2021", "Figures 4 and 5"),
    summary=fig02.SUMMARY.format(m=10),
    paper_says=fig02.PAPER_SAYS,
    settings=fig02.presets(10),
    tasks=fig02.tasks,
    compute=fig02.compute,
    panels=fig02.PANELS,
    check=fig02.check,
)
