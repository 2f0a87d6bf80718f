"""The command line. Only this layer knows click; `main` is where it starts."""
