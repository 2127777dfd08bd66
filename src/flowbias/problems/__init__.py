"""Data to be fitted, checked once: vectors and matrices."""
