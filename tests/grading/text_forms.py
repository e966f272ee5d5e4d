"""Answers in words: forms of right ones, and wrong ones that look like them.

Left out of ``HONEST``, because the normalization that benchmarks share does not know them either: other words for the same
(``USA``, ``United States``), numbers in words, and letters without their accents.
"""

import unicodedata

from tests.tables import pairs

HONEST: dict[str, list[str]] = {
    "A": ["a", "A.", "(A)", "'A'", " A "],
    "The The": ["the the", "The The!", "THE THE", "“The The”"],
    "The A": ["the a", "THE A"],
    "An": ["an", "An."],
    "Hepatitis A": ["hepatitis a", "the Hepatitis A", "Hepatitis A."],
    "O'Brien": ["O’Brien", "o'brien", "OBrien", "O‘Brien", "O´Brien", "Oʼbrien"],
    "1914–1918": ["1914-1918", "1914—1918", "1914−1918", "1914 – 1918", "(1914–1918)", "1914‑1918"],
    "Café Müller": [unicodedata.normalize("NFD", "Café Müller"), "café müller", "CAFÉ MÜLLER", "the Café Müller"],
    "São Paulo": [unicodedata.normalize("NFD", "São Paulo"), "são paulo", "SÃO PAULO", "São\u00a0Paulo"],
    "Straße": ["STRASSE", "straße", "Strasse"],
    "The Beatles": ["Beatles", "the beatles", "Beatles.", "“The Beatles”", "«The Beatles»", "BEATLES!"],
    "Eiffel Tower": ["the Eiffel Tower", "eiffel tower", "Eiffel  Tower", "an Eiffel Tower", "Eiffel Tower…"],
    "Jean-Paul Sartre": ["Jean‑Paul Sartre", "Jean–Paul Sartre", "jean-paul sartre", "JeanPaul Sartre"],
    "U.S.": ["US", "u.s.", "U.S"],
    "Dr. No": ["Dr No", "dr. no"],
    "1,000,000": ["1000000", "1,000,000.", "１００００００"],
    "5": ["5", "5.", "(5)", "５", "#5"],
    "-5": ["−5", "–5", "-5.", "(-5)"],
    "3.5": ["3.5", "3.5.", "(3.5)", "３.５"],
    "0.5": ["0.5", "0.5."],
    "$1.50": ["1.50", "$1.50.", "1.50$"],
    "10:30": ["10:30", "10:30."],
    "1/2": ["1/2", "(1/2)", "1⁄2"],
    "C++": ["c++", "C++.", "the C++"],
    "C#": ["c#", "C#!"],
    "yes": ["Yes", "YES.", "yes!"],
    "no": ["No", "no."],
    "Rock 'n' Roll": ["Rock ’n’ Roll", "rock n roll", "Rock ‘n’ Roll"],
    "AT&T": ["AT&T", "at&t", "ATT"],
    "!": ["!", " ! "],
    "ﬁnance": ["finance", "Finance"],
    "Ｔｏｋｙｏ": ["Tokyo", "tokyo"],
    "東京": ["東京", "「東京」", "東京。"],
    "Apollo 11": ["apollo 11", "Apollo 11.", "the Apollo 11"],
    "May 4, 1970": ["May 4 1970", "may 4, 1970"],
    "September 11, 2001": ["September 11 2001"],
    "AC/DC": ["ac/dc", "ACDC"],
    "Catch-22": ["Catch‑22", "catch-22"],
    "x2": ["X2"],
    "Queen Elizabeth II": ["queen elizabeth ii", "the Queen Elizabeth II"],
}

WRONG = pairs("""
5 ← -5 ¦ .5 ¦ −5 ¦ –5 ¦ ... ¦ - ¦ 5e3 ¦ 50 ¦ 05 ‖ -5 ← 5 ‖ 35 ← 3.5 ‖ 3.5 ← 35 ‖ 12 ← 1/2 ¦ 1,2 ¦ 1;2 ‖ 1/2 ← 12
1030 ← 10:30 ¦ 10.30 ‖ 15 ← 1.5 ‖ 05 ← -0.5 ¦ 0.5 ‖ 1000 ← 1.000 ¦ 1.000.000 ‖ .5 ← 5 ‖ 1234 ← 12,34 ‖ 23 ← 2*3 ¦ 2^3
56 ← 5-6 ‖ 1914–1918 ← 1914 ¦ 19141918 ¦ 1918-1914 ‖ 1800 ← 1-800 ‖ 314 ← 3.14 ‖ The The ← The ‖ A ← the ¦ an ¦  ‖ The ← a
The A ← The ‖ Hepatitis A ← Hepatitis ¦ Hepatitis B ‖ Vitamin A ← Vitamin ‖ C++ ← C ¦ C# ‖ C# ← C ‖ C ← C++ ‖ ! ←  ¦ ?
O'Brien ← OBrian ‖ The Beatles ← Beatle ¦ The Stones ¦ Beatles Stones ‖ São Paulo ← Paul ‖ yes ← yes no ¦ no
no ← yes or no ¦ not ‖ 11 ← 1 ‖ 1 ← 11 ‖ Apollo 11 ← Apollo 1 ¦ Apollo ‖ September 11, 2001 ← 2001 9 11 ‖ x3 ← x-2
""")
