"""The names of reasoning-gym's generators, listed here because importing the library takes seconds."""

from typing import Any

from palestra.registry import Need, register

__all__ = ["FLOORS", "GENERATORS", "SLOW"]

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
"""Names in version 0.1.25, by the library's own kinds."""

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
"""Generators that may take longer than 0.1 s to draw a question, score an answer or find one."""

FLOORS: dict[str, float] = {
    "ab": 0.02,
    "acre": 0.42,
    "advanced_geometry": 0.03,
    "aiw": 0.21,
    "arc_1d": 0.02,
    "arc_agi": 0.06,
    "base_conversion": 0.02,
    "basic_arithmetic": 0.06,
    "bf": 0.01,
    "binary_alternation": 0.22,
    "binary_matrix": 0.04,
    "bitwise_arithmetic": 0.03,
    "boxnet": 0.18,
    "caesar_cipher": 0.01,
    "calendar_arithmetic": 0.17,
    "chain_sum": 0.03,
    "circuit_logic": 0.62,
    "codeio": 0.16,
    "coin_flip": 0.13,
    "color_cube_rotation": 0.1,
    "complex_arithmetic": 0.02,
    "composite": 0.14,
    "count_bits": 0.16,
    "count_primes": 0.02,
    "countdown": 0.08,
    "course_schedule": 0.52,
    "cryptarithm": 0.01,
    "decimal_arithmetic": 0.01,
    "dice": 0.02,
    "emoji_mystery": 0.03,
    "family_relationships": 0.16,
    "figlet_font": 0.08,
    "fraction_simplification": 0.06,
    "futoshiki": 0.4,
    "game_of_life": 0.97,
    "game_of_life_halting": 0.54,
    "gcd": 0.3,
    "graph_color": 0.19,
    "group_anagrams": 0.01,
    "gsm_symbolic": 0.04,
    "intermediate_integration": 0.09,
    "isomorphic_strings": 0.53,
    "jugs": 0.08,
    "knight_swap": 0.25,
    "knights_knaves": 0.3,
    "largest_island": 0.22,
    "lcm": 0.16,
    "leg_counting": 0.02,
    "letter_counting": 0.34,
    "letter_jumble": 0.09,
    "list_functions": 0.19,
    "mahjong_puzzle": 0.43,
    "manipulate_matrix": 0.08,
    "maze": 0.34,
    "mini_sudoku": 0.26,
    "modulo_grid": 0.02,
    "n_queens": 0.08,
    "needle_haystack": 0.03,
    "number_filtering": 0.01,
    "number_format": 0.13,
    "number_sequence": 0.33,
    "palindrome_generation": 0.08,
    "polynomial_equations": 0.38,
    "polynomial_multiplication": 0.01,
    "pool_matrix": 0.36,
    "power_function": 0.14,
    "prime_factorization": 0.17,
    "products": 0.05,
    "propositional_logic": 1.0,
    "puzzle24": 0.09,
    "quantum_lock": 0.09,
    "ransom_note": 0.52,
    "rearc": 0.15,
    "rectangle_count": 0.43,
    "rotate_matrix": 0.27,
    "rotten_oranges": 0.36,
    "rubiks_cube": 0.02,
    "rush_hour": 0.01,
    "self_reference": 0.34,
    "sentence_reordering": 0.15,
    "shortest_path": 0.38,
    "simple_equations": 0.06,
    "simple_geometry": 0.02,
    "spell_backward": 0.12,
    "string_manipulation": 0.01,
    "string_splitting": 0.03,
    "string_synthesis": 0.03,
    "sudoku": 0.26,
    "syllogism": 0.7,
    "time_intervals": 0.46,
    "tower_of_hanoi": 0.08,
    "tsumego": 0.08,
    "word_sorting": 0.27,
    "zebra_puzzles": 0.34,
}
"""The best score of an answer that needs no solving.

Measured by ``tests/suite/reasoning/attacks.py``: constants, the right answers of other tasks, and every number, line,
quotation, bracket and example of the prompt, over 200 tasks (12 for slow generators). If an earlier sample of 300 constants
scored higher, that value stands.
"""

COMPOSITE: list[dict[str, Any]] = [
    {"name": name, "weight": 1.0, "config": {}} for name in ("chain_sum", "letter_counting", "leg_counting")
]

_NEEDS = (Need(label="reasoning-gym", module="reasoning_gym", extra="reasoning"),)


for kind, names in GENERATORS.items():
    for name in names.split():
        register(
            f"rg:{name}",
            f"palestra.suite.reasoning.question:{'SlowReasoning' if name in SLOW else 'Reasoning'}",
            kwargs={"name": name, **({"datasets": COMPOSITE} if name == "composite" else {})},
            max_turns=1,
            tags={"reasoning", kind},
            needs=_NEEDS,
            description=f"reasoning-gym ({kind}): {name.replace('_', ' ')}.",
        )
