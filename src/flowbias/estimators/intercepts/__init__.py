"""The two meanings of an intercept: centred data, or a bias that is trained with the rest."""
