"""Baselines that play without a model, as backends: the game's own plan, and two kinds of chance.

A backend sees messages only. What the baselines know beyond them, the admissible commands and what is left of the
plan, is published by the episodes (`table`), and only while such a backend is open.
"""
