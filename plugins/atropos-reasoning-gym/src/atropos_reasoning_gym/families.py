"""What is known of the families of reasoning-gym beyond what the package says itself (read in 0.1.25)."""

from __future__ import annotations

EXECUTING = {
    "binary_matrix": "literal",
    "n_queens": "literal",
    "spiral_matrix": "literal",
    "string_insertion": "literal",
    "countdown": "formula",
    "intermediate_integration": "formula",
    "polynomial_multiplication": "formula",
    "puzzle24": "formula",
    "simple_integration": "formula",
}
"""Families whose scorer hands the answer to eval() ("literal": a list is meant) or to sympy's parser ("formula")."""

GOLD_ELSEWHERE = {
    "propositional_logic": "example_answer",
    "rubiks_cube": "example_correct_answer",
}
"""Families without one right answer whose metadata holds an example of one."""
