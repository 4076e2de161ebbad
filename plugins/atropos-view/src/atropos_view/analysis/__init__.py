"""Statistics of stored rollouts in one pass and bounded memory, as JSON, charts and a page."""
