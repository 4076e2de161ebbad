"""The agent: replies with thinking, a memory and a predicted outcome, and what is made of them."""
