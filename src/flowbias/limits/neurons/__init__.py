"""Limits of single neurons, linear and leaky, and of sums of them."""
