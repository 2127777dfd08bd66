"""Samples X and outputs y from bytes that anybody wrote: checked, and never run."""
