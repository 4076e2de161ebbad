"""Everything around the optimiser: live rollouts, stored data, evaluation, records, signals."""
