"""The figures of [min2021]: convergence and implicit bias of two-layer linear networks."""
