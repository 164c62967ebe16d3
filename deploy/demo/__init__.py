"""``make demo``: the whole stack on one machine, from simulated predictors to pages."""
