"""Experiments that no paper shows: what the papers leave open, computed."""
