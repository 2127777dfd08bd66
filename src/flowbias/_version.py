"""The version, in the one place from which the package root and the figures' pages take it."""

__version__ = "0.1.0"
