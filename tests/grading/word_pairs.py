"""Answers in words for an accepted one: which count as equal, and which do not."""

from tests.tables import pairs

EQUAL = pairs("""
5 ← +5 ¦ $5 ¦ 5. ¦ #5 ‖ 1000 ← 1,000 ‖ 1/2 ← ½ ¦ 1⁄2 ‖ H2O ← H₂O ‖ IV ← Ⅳ ‖ 1 ← ① ‖ A ← the A ¦ a ‖ OBrien ← O'Brien
NET ← .NET ‖ … ← ... ‖ coop ← co-op ‖ US ← U.S. ‖ Strasse ← Straße ‖ istanbul ← İstanbul ‖ eg ← e.g. ‖ Pais ← \u202ePais
Paris ← Pa\u200dris ¦ Par\u200bis ¦ \u2066Paris\u2069 ¦ \ufeffParis ¦ Pa\xadris ¦ Paris. ¦ (Paris) ¦ "Paris" ¦ **Paris**
Paris ← *Paris* ¦ Paris! ¦ «Paris» ‖ -5 ← −5 ¦ (-5) ¦ - 5 ‖ A B ← A, B ‖ Café ← Cafe\u0301 ‖ x ← “x”
1914–1918 ← 1914-1918 ‖ 1914-1918 ← 1914 – 1918 ¦ 1914 - 1918 ‖ İstanbul ← istanbul ‖ İzmir ← IZMIR ‖ ﬁnance ← finance
Ｔokyo ← tokyo ‖ Coke ← Coke™ ¦ Coke® ‖ Disney ← ©Disney ‖ Beatles ← the Beatles ‖ The Beatles ← Beatles
Vitamin A ← the vitamin A ‖ The The ← the the ‖ A+ ← **A+** ‖ O'Brien ← OBrien ‖ U.S. ← U.S ‖ 1000000 ← 1,000,000
- 5 ← −5 ‖ -0.5 ← −0.5 ‖ -.5 ← - .5 ‖ $1.50 ← 1.50 ‖ 1,2 ← 1, 2 ‖ 1; 2 ← 1, 2 ‖ 2001-09-11 ← 2001/09/11 ¦ 2001.09.11
10:30 ← 10:30. ¦ (10:30) ‖ 5½ ← 5 1/2 ‖ 2¾ ← 2 3/4 ‖ x² ← x^2 ‖ x^2 ← x² ‖ 10⁻⁵ ← 10^-5 ‖ E = mc² ← E = mc^2 ‖ CO₂ ← CO2
>5 ← >5 ¦ > 5 ‖ ≥5 ← ≥ 5 ‖ 5! ← 5! ‖ 5% ← 5 % ¦ 5%. ¦ (5%) ‖ A- ← A− ¦ (A-) ¦ a-. ‖ Na+ ← Na⁺ ‖ C++ ← c++ ‖ C# ← the C#
Jean-Paul Sartre ← Jean Paul Sartre ¦ JeanPaul Sartre ‖ Jean Paul Sartre ← Jean‑Paul Sartre ‖ well known ← well-known
twenty-one ← twenty one ‖ e-mail ← email ‖ X-ray ← x ray ‖ AC/DC ← ACDC ¦ AC DC ‖ AT&T ← ATT ‖ F-16 ← F16 ¦ F 16
Catch-22 ← Catch 22 ‖ a-b ← A-B ‖ A/B ← a/b ‖ resign ← re-sign ‖ September 11, 2001 ← september 11 2001 ‖ no ← No.
3 4 ← 3  4 ‖ ? ← ?
""")
DIFFERENT = pairs("""
5 ← 5% ¦ <5 ¦ >5 ¦ ~5 ¦ 5! ¦ - 5 ¦ 5- ¦ €5 ¦ 5\x00 ¦ -5 ¦ (-5) ¦ £5 ¦ > 5 ¦ ≥5 ¦ ≤ 5 ¦ = -5 ‖ 1000 ← 1 000 ¦ 1.000
12 ← ½ ¦ 1/2 ¦ 1:2 ‖ 25 ← ²5 ‖ 52 ← 5² ‖ x2 ← x² ‖ A ← A* ¦ A+ ¦ A- ¦ the ¦ A− ‖ O- ← O+ ‖ AB- ← AB+ ‖ O ← O- ¦ O+
Na ← Na+ ‖ Cl+ ← Cl- ‖ 3.5 ← 3.50 ‖ ab ← a-b ¦ a/b ‖ AB ← A/B ¦ A;B ‖ 5 3 ← 5 - 3 ‖ 57 ← 5–7 ‖ 5 7 ← 5-7 ‖ CC++ ← C/C++
.5 ← - .5 ‖ Paris ← Раris ¦ not Paris ¦ Paris or London ¦ Pari ‖ F ← F♯ ‖ B ← B♭ ‖ naïve ← naive ‖ Müller ← Muller
The The ← The ‖ The A ← The ‖ Vitamin A ← Vitamin ¦ Vitamin the ‖ -5 ← 5 ‖ 35 ← 3.5 ‖ 1/2 ← 1:2 ‖ $5 ← €5
5-7 ← 5 7 ¦ 57 ¦ 7-5 ‖ 10:30 ← 1030 ¦ 10 30 ¦ 10.30 ‖ 2001-09-11 ← 2001 09 11 ¦ 2001-11-09 ‖ 2*3 ← 23 ¦ 2 3
>5 ← <5 ¦ >=5 ¦ ≥5 ‖ ~5 ← 5 ‖ 5! ← 5 ‖ 120 ← 5! ‖ 5% ← 5 ¦ 5‰ ‖ 50% ← 0.5 ‖ 0.5 ← 0.5% ‖ A- ← A ¦ A+ ‖ A+ ← A
A* ← A ¦ A+ ‖ B+ ← B ‖ O+ ← O- ‖ Na+ ← Na ‖ Cl- ← Cl ‖ Ca2+ ← Ca2 ¦ Ca2- ‖ Fe3+ ← Fe2+ ‖ C ← C++ ‖ C++ ← C# ‖ F# ← F
H₂O ← HO ¦ H²O ‖ 5½ ← 51/2 ¦ 5.1/2 ‖ x² ← x2 ‖ x^2 ← x2 ‖ 10⁵ ← 105 ‖ 10⁻⁵ ← 10-5 ¦ 10^5 ‖ 5² ← 5 2 ‖ a-b ← ab ¦ a b
A/B ← A-B ‖ B-2 ← B2 ¦ B 2 ‖ B2 ← B-2 ‖ R&B ← RB ‖ AC/DC ← AC ‖ Jean-Paul ← Jean ‖ Catch-22 ← Catch-23 ‖ yes ← no ‖  ← x
x ←  ¦ \u200b ‖ ? ← ! ‖ ! ←  ‖ - ← + ‖ 1,2 ← 12 ‖ 1 2 ← 12 ‖ 3 4 ← 34 ‖ 1.10 ← 1.1 ‖ 05 ← 5
""")

PERCENT = pairs("5 ← 5% ¦ 5 % ‖ 5% ← 5 ‖ 0.5 ← 0.5% ‖ 12.5% ← 12.5")
"""Equal with ``percent=True`` and different without."""
HYPHENS = pairs("resign ← re-sign ‖ coop ← co-op ‖ Jean-Paul ← Jean Paul ‖ ACDC ← AC/DC ‖ and/or ← andor ‖ F-16 ← F16")
"""Different with ``hyphens=True`` and equal without."""
