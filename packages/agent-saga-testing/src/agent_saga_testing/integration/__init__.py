"""The conformance kit for packages that put agent-saga into an agent framework.

Rules of this part:

- A package gives a short driver: how its framework makes an agent with a scripted model, runs it,
  goes on with it and streams it. The cases are the same for all.
- Every case counts effects in a world outside the process; what a framework reports is not
  believed.
- What a framework makes impossible is a named deviation with its reason; a case that is missing
  without one fails the guard, as with every other kit.
"""
