"""A parametrization w = F(theta) typed as a formula, e.g. u^2 - v^2: parsed here, never run."""
