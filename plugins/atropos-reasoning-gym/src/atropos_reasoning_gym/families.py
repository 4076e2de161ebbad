"""What is known of the families of reasoning-gym beyond what the package says itself (read in 0.1.25)."""

from __future__ import annotations

EXECUTING = {
    "binary_matrix": "literal",
    "n_queens": "literal",
    "spiral_matrix": "literal",
    "string_insertion": "literal",
    "countdown": "arithmetic",
    "intermediate_integration": "formula",
    "polynomial_multiplication": "formula",
    "puzzle24": "arithmetic",
    "simple_integration": "formula",
}
"""Families whose scorer hands the answer to eval() ("literal": a list is meant) or to sympy's parser.

Where a result is to be made of given whole numbers ("arithmetic"), the scorer looks for digits to see which were used:
it misses those of `1e3` and `x7`, and what names stand for. Other families take a "formula".
"""

GOLD_ELSEWHERE = {
    "propositional_logic": "example_answer",
    "rubiks_cube": "example_correct_answer",
}
"""Families without one right answer whose metadata holds an example of one."""
