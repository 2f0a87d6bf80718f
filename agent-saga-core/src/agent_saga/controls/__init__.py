"""What is judged before an effect: rules and approvals; the engine makes the calls."""
