"""What is judged before an effect: rules and approvals. Judgement only; the engine makes the calls."""
