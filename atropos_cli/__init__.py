"""atropos: one command line for LLM reinforcement-learning data."""

__version__ = "0.1.0"
