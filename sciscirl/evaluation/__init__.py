"""Judge a model in training on held-out papers, as an evaluator of the cookbook; alone, it is judged in the lab."""
