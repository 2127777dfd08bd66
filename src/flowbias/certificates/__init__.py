"""Proof of a limit, recomputed from the data and the answer alone, by no method of the solvers."""

from flowbias.certificates.certificate import Certificate, certify

__all__ = ["Certificate", "certify"]
