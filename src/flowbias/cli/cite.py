"""`flowbias cite`: what to cite, as BibTeX."""

from __future__ import annotations

from flowbias._version import __version__
from flowbias.cli.console import results

_SOFTWARE = f"""\
@software{{flowbias,
  title   = {{flowbias: the exact implicit bias of gradient flow}},
  author  = {{{{The flowbias developers}}}},
  version = {{{__version__}}},
  license = {{BSD-3-Clause}}
}}"""

_PAPERS = r"""@inproceedings{woodworth2020,
  title     = {{Kernel and Rich Regimes in Overparametrized Models}},
  author    = {Woodworth, Blake and Gunasekar, Suriya and Lee, Jason D. and Moroshko, Edward and
               Savarese, Pedro and Golan, Itay and Soudry, Daniel and Srebro, Nathan},
  booktitle = {Proceedings of the Thirty Third Conference on Learning Theory (COLT)},
  year      = {2020}
}

@inproceedings{azulay2021,
  title     = {{On the Implicit Bias of Initialization Shape: Beyond Infinitesimal Mirror Descent}},
  author    = {Azulay, Shahar and Moroshko, Edward and Nacson, Mor Shpigel and Woodworth, Blake and
               Srebro, Nathan and Globerson, Amir and Soudry, Daniel},
  booktitle = {Proceedings of the 38th International Conference on Machine Learning (ICML)},
  year      = {2021}
}

@misc{min2021,
  title         = {{Convergence and Implicit Bias of Gradient Flow on Overparametrized Linear
                   Networks}},
  author        = {Min, Hancheng and Tarmoun, Salma and Vidal, Ren{\'e} and Mallada, Enrique},
  eprint        = {2105.06351},
  archivePrefix = {arXiv},
  note          = {The longer version of a paper at ICML 2021, cited by its own numbers},
  year          = {2021}
}"""


def cite() -> None:
    """Print BibTeX for flowbias and for the papers whose theorems it computes."""
    results().print(f"{_SOFTWARE}\n\n{_PAPERS}", soft_wrap=True)
