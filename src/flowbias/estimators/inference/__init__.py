"""How far a fitted limit can be trusted: left-out samples, refits, degrees of freedom, errors."""
