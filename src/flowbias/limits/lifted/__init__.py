"""Limits of products of two factors: linear networks and matrix factorization."""
