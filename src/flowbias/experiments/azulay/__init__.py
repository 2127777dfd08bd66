"""Figures of azulay2021: the shape of the initialization."""
