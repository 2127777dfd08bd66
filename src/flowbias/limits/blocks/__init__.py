"""Limits on an X that is too big for the dense solver, over blocks of its columns."""
