"""`atropos score`: rewards of stored rollouts, computed again."""
