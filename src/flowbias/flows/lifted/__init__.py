"""Flows of products U V^T, lifted to Z = [U; V]: Z Z^T, and not the width, decides them."""
