"""From verdicts to people: reads published results, never runs anything."""
