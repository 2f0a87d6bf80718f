"""tau2-bench: a shop, an airline, and a telephone company with its customer's phone."""
