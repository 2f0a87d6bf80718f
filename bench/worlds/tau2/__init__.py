"""tau2-bench's customer services: a shop, an airline, a telephone company with the customer's phone."""
