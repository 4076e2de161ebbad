"""Trainers of other packages in Pythons of their own: their episodes are played here, their results read back."""
