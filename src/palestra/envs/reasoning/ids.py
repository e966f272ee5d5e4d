"""The names of reasoning-gym's generators, listed by hand because importing the library takes seconds."""

from typing import Any

from palestra.registry import Need, register

__all__ = ["FLOORS", "GENERATORS", "SLOW", "register_reasoning"]

GENERATORS: dict[str, str] = {
    "algebra": (
        "complex_arithmetic intermediate_integration polynomial_equations polynomial_multiplication "
        "simple_equations simple_integration"
    ),
    "algorithmic": (
        "ab base_conversion binary_alternation binary_matrix caesar_cipher count_primes cryptarithm "
        "game_of_life game_of_life_halting graph_color group_anagrams isomorphic_strings jugs letter_counting "
        "letter_jumble manipulate_matrix number_filtering number_sorting palindrome_generation "
        "palindrome_partitioning pool_matrix ransom_note rotate_matrix rotten_oranges sentence_reordering "
        "spell_backward spiral_matrix string_insertion string_manipulation string_splitting string_synthesis "
        "word_ladder word_sequence_reversal word_sorting"
    ),
    "arc": "arc_1d arc_agi rearc",
    "arithmetic": (
        "basic_arithmetic bitwise_arithmetic calendar_arithmetic chain_sum count_bits decimal_arithmetic "
        "decimal_chain_sum dice fraction_simplification gcd gsm_symbolic lcm leg_counting number_format "
        "power_function prime_factorization products time_intervals"
    ),
    "code": "bf codeio",
    "cognition": ("color_cube_rotation figlet_font modulo_grid needle_haystack number_sequence rectangle_count rubiks_cube"),
    "games": (
        "boxnet countdown emoji_mystery futoshiki kakurasu knight_swap mahjong_puzzle maze mini_sudoku "
        "n_queens puzzle24 rush_hour sokoban sudoku survo tower_of_hanoi tsumego"
    ),
    "geometry": "advanced_geometry simple_geometry",
    "graphs": "course_schedule family_relationships largest_island path_star quantum_lock shortest_path",
    "induction": "acre list_functions",
    "logic": "aiw circuit_logic knights_knaves propositional_logic self_reference syllogism zebra_puzzles",
    "other": "composite",
    "probability": "coin_flip",
}
"""Of version 0.1.25, by the library's own kind."""

SLOW = frozenset(
    {
        "countdown",
        "futoshiki",
        "intermediate_integration",
        "knight_swap",
        "polynomial_equations",
        "puzzle24",
        "quantum_lock",
        "rush_hour",
        "simple_integration",
        "sokoban",
        "zebra_puzzles",
    }
)
"""Those that may take longer than a tenth of a second to draw a question, to score an answer or to find one."""

FLOORS: dict[str, float] = {
    "acre": 0.42,
    "aiw": 0.2,
    "arc_agi": 0.06,
    "basic_arithmetic": 0.06,
    "binary_alternation": 0.22,
    "boxnet": 0.18,
    "calendar_arithmetic": 0.14,
    "circuit_logic": 0.62,
    "codeio": 0.16,
    "coin_flip": 0.64,
    "color_cube_rotation": 0.1,
    "composite": 0.14,
    "count_bits": 0.16,
    "countdown": 0.08,
    "course_schedule": 0.52,
    "family_relationships": 0.16,
    "figlet_font": 0.08,
    "fraction_simplification": 0.06,
    "futoshiki": 0.26,
    "game_of_life": 0.96,
    "game_of_life_halting": 1.0,
    "gcd": 0.3,
    "graph_color": 0.12,
    "isomorphic_strings": 0.52,
    "jugs": 0.08,
    "knight_swap": 0.24,
    "largest_island": 0.22,
    "letter_counting": 0.34,
    "list_functions": 0.08,
    "mahjong_puzzle": 0.38,
    "manipulate_matrix": 0.08,
    "maze": 0.34,
    "mini_sudoku": 0.26,
    "n_queens": 0.08,
    "number_sequence": 0.14,
    "palindrome_generation": 0.08,
    "polynomial_equations": 0.32,
    "power_function": 0.14,
    "propositional_logic": 0.7,
    "quantum_lock": 0.06,
    "ransom_note": 0.52,
    "rearc": 0.08,
    "rectangle_count": 0.42,
    "rotten_oranges": 0.36,
    "self_reference": 0.34,
    "shortest_path": 0.38,
    "simple_equations": 0.06,
    "spell_backward": 0.1,
    "sudoku": 0.16,
    "syllogism": 0.7,
    "time_intervals": 0.46,
    "tower_of_hanoi": 0.08,
    "tsumego": 0.08,
    "zebra_puzzles": 0.32,
}
"""What the best constant answer scores: measured over up to 300 tasks (2 to 16 for some slow generators), a few set by hand."""

_COMPOSITE: list[dict[str, Any]] = [
    {"name": name, "weight": 1.0, "config": {}} for name in ("chain_sum", "letter_counting", "leg_counting")
]

_NEEDS = (Need(label="reasoning-gym", module="reasoning_gym", extra="reasoning"),)


def register_reasoning() -> None:
    """Register ``rg:name`` for every generator."""
    for kind, names in GENERATORS.items():
        for name in names.split():
            register(
                f"rg:{name}",
                f"palestra.envs.reasoning.question:{'SlowReasoning' if name in SLOW else 'Reasoning'}",
                kwargs={"name": name, **({"datasets": _COMPOSITE} if name == "composite" else {})},
                max_turns=1,
                tags={"reasoning", kind},
                needs=_NEEDS,
                description=f"reasoning-gym ({kind}): {name.replace('_', ' ')}.",
            )
