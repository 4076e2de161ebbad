"""Trainers of other packages in Pythons of their own: the episodes they play here, their process, what they write."""
