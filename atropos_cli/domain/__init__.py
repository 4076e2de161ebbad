"""The nouns of the product: frozen pydantic models without I/O.

Messages, tasks, rollouts, scored groups, plans. Every layer above speaks in these.
"""
