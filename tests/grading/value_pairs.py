"""Values that a function may return for an expected one: which count as equal, and which do not. Both are Python source."""

from tests.tables import pairs

STRICT_EQUAL = pairs(r"""
{9.999999999999998, 5.0} ← {10.0, 5.0} ‖ {9.999999999999999: 1, 5.0: 2} ← {10.0: 1, 5.0: 2}
{frozenset([0, 8]), frozenset([1, 9])} ← {frozenset([8, 0]), frozenset([1, 9])}
{frozenset([8, 0]): 1, frozenset([1, 9]): 2} ← {frozenset([0, 8]): 1, frozenset([9, 1]): 2}
{frozenset('ab'), frozenset('cd')} ← {frozenset('ba'), frozenset('dc')}
{frozenset('eat'), frozenset('tan'), frozenset('bat')} ← {frozenset('tea'), frozenset('tab'), frozenset('nat')}
{sum([3.3, 3.3, 3.4]), 5.0} ← {sum([3.4, 3.3, 3.3]), 5.0}
(1, 2) ← namedtuple('P', 'class b', rename=True)(1, 2) ¦ namedtuple('P', 'x y')(1, 2) ‖ nested(120) ← nested(120)
nested(249) ← nested(249) ‖ 0.0 ← -0.0 ¦ 1e-12 ‖ nan ← nan ‖ {1, 'a', None} ← {None, 'a', 1} ‖ None ← None ‖ False ← False
10**30 ← 10**30 ‖ -7 ← -7 ‖ 'é' ← '\xe9' ‖ b'\x00' ← b'\x00' ‖ 0.3 ← 0.1 + 0.2 ‖ 1e308 ← 1e308 * (1 + 1e-12) ‖ inf ← inf
-inf ← -inf ‖ 5.551115123125783e-17 ← 0.0 ‖ 1 / 3 ← 0.33333333333 ‖ 3 + 4j ← complex(3.0000000001, 4.0)
complex(0.0, 0.0) ← complex(0.0, -0.0) ‖ [1, 'a', [2.5]] ← [1, 'a', [2.5000000001]] ‖ (1, (2, 3)) ← (1, (2, 3))
deque([1, 2]) ← deque([1, 2], maxlen=2) ‖ set() ← set() ‖ {1, 2, 3} ← {3, 2, 1} ‖ {0.3, 0.7} ← {0.7, 0.1 + 0.2}
{0.3, 'x', 0.7} ← {0.7, 0.1 + 0.2, 'x'} ‖ {(0.3, 1), (0.7, 2)} ← {(0.7, 2), (0.1 + 0.2, 1)}
{(1, 0.3), (1, 0.7)} ← {(1, 0.7), (1, 0.1 + 0.2)}
{frozenset([0.3, 1]), frozenset([0.3, 2])} ← {frozenset([2, 0.1 + 0.2]), frozenset([1, 0.1 + 0.2])}
{frozenset([0.3, 0.7]), frozenset([0.3, 0.9])} ← {frozenset([0.9, 0.1 + 0.2]), frozenset([0.7, 0.1 + 0.2])}
{frozenset([frozenset([1, 9])]), frozenset()} ← {frozenset(), frozenset([frozenset([9, 1])])}
frozenset([frozenset('xyz'), 1.0]) ← frozenset([1.0000000001, frozenset('zyx')])
{1 + 2j, 3 + 4j} ← {3 + 4j, complex(1.0000000001, 2)}
{(1.0, 2.0), (1.0000000001, 3.0)} ← {(1.0000000001, 2.0), (1.0, 3.0)}
{1.0, 1.0000000005, 1.000000001} ← {1.0000000005, 1.000000001, 1.0000000015} ‖ {nan} ← {float('nan')}
{inf, -inf, 0.3} ← {-inf, 0.1 + 0.2, inf} ‖ {1, 1.5, '1', None} ← {None, '1', 1.5, 1} ‖ {1.0, 0.0} ← {-0.0, 1.0}
{'a': {0.3, 0.7}} ← {'a': {0.7, 0.1 + 0.2}} ‖ {'b': 1, 'a': 2} ← {'a': 2, 'b': 1}
{0.3: 'x', 0.7: 'y'} ← {0.7: 'y', 0.1 + 0.2: 'x'} ‖ {0.1: 5.0, 0.2: 5.0, 0.3: 5.0} ← {0.1 + 0.2: 5.0, 0.2: 5.0, 0.1: 5.0}
{(1, 2): 'x', (2, 1): 'y'} ← {(2, 1): 'y', (1, 2): 'x'}
{frozenset('ab'): {frozenset('cd'): 0.3}} ← {frozenset('ba'): {frozenset('dc'): 0.1 + 0.2}} ‖ {'a': 2} ← Counter('aa')
Counter('aab') ← {'b': 1, 'a': 2} ‖ {'a': 1, 'b': 2} ← OrderedDict(b=2, a=1)
{1: [2]} ← defaultdict(list, {1: [2]}) ¦ defaultdict(lambda: 7, {1: [2]}) ‖ 2 ← IntEnum('Color', 'RED BLUE').BLUE
'x' ← type('S', (str,), {})('x') ‖ [1] ← type('L', (list,), {})([1]) ‖ 1.5 ← type('F', (float,), {})(1.5)
range(3) ← range(0, 3) ‖ range(0, 3, 2) ← range(0, 4, 2) ‖ range(0) ← range(5, 5) ‖ range(5, 3) ← range(0)
range(1, 2, 5) ← range(1, 3, 9) ‖ Fraction(1, 3) ← Fraction(2, 6) ‖ Decimal('1.0') ← Decimal('1.00')
Decimal('100') ← Decimal('1E+2') ‖ Decimal('0') ← Decimal('-0') ‖ Decimal('NaN') ← Decimal('NaN')
Decimal('Infinity') ← Decimal('Infinity') ‖ {Decimal('1.0'), Decimal('2')} ← {Decimal('2.00'), Decimal('1')}
{Fraction(1, 3): 1, Fraction(2, 3): 2} ← {Fraction(4, 6): 2, Fraction(1, 3): 1} ‖ bytearray(b'ab') ← bytearray(b'ab')
[set(), frozenset(), {}, (), []] ← [set(), frozenset(), {}, (), []] ‖ set(range(5000)) ← set(reversed(range(5000)))
{n / 7 for n in range(3000)} ← {n / 7 + 1e-13 for n in range(3000)}
{n / 7: 1.0 for n in range(3000)} ← {n / 7 + 1e-13: 1.0 for n in range(3000)}
{(x / 7, y / 7) for x in range(30) for y in range(30)} ← {(x / 7, y / 7 + 1e-13) for x in range(30) for y in range(30)}
'\ud800' ← '\ud800' ‖ nested(200) ← nested(200)
""")
STRICT_DIFFERENT = pairs(r"""
1 ← True ¦ 1.0 ¦ '1' ‖ [0, 1, 2] ← range(3)
{'a': 1} ← Counter({'a': 1, 'b': 0}) ¦ {'a': 2} ¦ {'b': 1} ¦ {'a': 1, 'b': 1} ¦ {'a': 1.0} ¦ [('a', 1)] ¦ {'a': 1}.keys()
{'a': 1} ← {'a': 1}.items() ‖ b'a' ← bytearray(b'a')
{frozenset([0, 8]), frozenset([1, 9])} ← {frozenset([0, 9]), frozenset([1, 8])} ‖ {10.0, 5.0} ← {10.000001, 5.0}
None ← False ‖ 0 ← False ¦ None ‖ 1.0 ← 1 ‖ True ← 1 ¦ 'True' ‖ 'a' ← b'a' ¦ 'a ' ¦ 'A' ‖ 'é' ← 'e\u0301' ‖ '' ← None
10**20 ← 10**20 + 1 ¦ 1e20 ‖ 0.3 ← 0.3000001 ¦ 0.30001 ‖ 5e-10 ← 0.0 ‖ 1e-14 ← 0.0 ‖ 0.0 ← 1e-8 ¦ nan ‖ 1e308 ← inf
inf ← -inf ‖ nan ← 0.0 ‖ 3 + 4j ← 4 + 3j ¦ 3.0 ‖ complex(3, 0) ← 3.0 ‖ [1, 2] ← [2, 1] ¦ [1, 2, 3] ¦ (1, 2) ¦ {1, 2}
(1, 2) ← [1, 2] ¦ namedtuple('P', 'x y')(2, 1) ‖ (1,) ← 1 ‖ [] ← () ¦ {} ‖ set() ← {} ¦ frozenset()
{1} ← frozenset([1]) ¦ [1] ¦ {1, 2} ¦ {True} ‖ deque([1, 2]) ← [1, 2] ¦ deque([2, 1]) ‖ {1, 2} ← {1, 3} ¦ {1}
{1.0} ← {1} ‖ {0.3, 0.7} ← {0.3, 0.71} ¦ {0.3} ¦ {0.3, 0.3000000000000001} ‖ {(0.3, 1), (0.7, 2)} ← {(0.3, 2), (0.7, 1)}
{frozenset([1, 2])} ← {(1, 2)} ‖ {frozenset([0.3, 1]), frozenset([0.7, 2])} ← {frozenset([0.3, 2]), frozenset([0.7, 1])}
{frozenset('ab'), frozenset('cd')} ← {frozenset('ac'), frozenset('bd')} ‖ {frozenset('ab')} ← {frozenset('abc')}
{nan} ← {0.0} ‖ {inf} ← {-inf} ‖ {1 + 2j, 3 + 4j} ← {1 + 4j, 3 + 2j} ‖ {1.0, 1.0000000005} ← {1.0, 1.1}
{1: 'a'} ← {'1': 'a'} ¦ {1.0: 'a'} ‖ {'a': 1, 'b': 2} ← {'a': 2, 'b': 1} ‖ {0.3: 'x', 0.7: 'y'} ← {0.3: 'y', 0.7: 'x'}
{frozenset('ab'): 1, frozenset('cd'): 2} ← {frozenset('ab'): 2, frozenset('cd'): 1} ‖ [1] ← {'a': 1}.values()
{'a'} ← {'a': 1}.keys() ‖ {'a': 2} ← Counter('ab') ‖ {} ← Counter(a=0)
2 ← Enum('Color', 'RED BLUE').BLUE ¦ IntEnum('Color', 'RED BLUE').RED ‖ range(3) ← [0, 1, 2] ¦ range(4) ¦ range(0, 3, 2)
(0, 1) ← range(2) ‖ Fraction(1, 3) ← 1 / 3 ¦ Fraction(333333333, 10**9) ‖ Fraction(2, 1) ← 2
Decimal('1.0') ← 1.0 ¦ Decimal('1.0000000001') ‖ Decimal('NaN') ← Decimal('0')
Decimal('Infinity') ← Decimal('-Infinity') ‖ {Decimal('1.0')} ← {Decimal('1.1')}
bytearray(b'ab') ← b'ab' ¦ bytearray(b'ba') ‖ [0, 1] ← iter([0, 1]) ¦ (n for n in [0, 1]) ¦ map(int, '01')
nested(5) ← nested(6) ‖ {n / 7 for n in range(3000)} ← {n / 7 + 1e-13 for n in range(2999)} | {-1.0}
{n / 7: 1.0 for n in range(3000)} ← {n / 7: 1.0 + (n == 2999) for n in range(3000)}
""")

LENIENT_EQUAL = pairs("""
[0, 1, 2] ← range(3) ‖ 0.1 ← Decimal('0.1') ‖ {'1': 'a', '2': 'b'} ← {1: 'a', 2: 'b'} ‖ 10**400 ← 10**400
[1, 2] ← (1, 2) ¦ [1, 2] ¦ namedtuple('P', 'x y')(1, 2) ‖ [[1, 2], [3]] ← ((1, 2), [3]) ‖ [] ← () ¦ range(0)
[3, 2, 1] ← range(3, 0, -1) ‖ [[0, 1], 'x'] ← (range(2), 'x') ‖ 7 ← 7.0 ¦ Fraction(14, 2) ¦ Decimal('7.00') ‖ 0 ← -0.0
10**15 ← 1e15 ‖ 2**60 ← 2.0**60 ‖ 10**22 ← 1e22 ‖ -3 ← Decimal('-3') ‖ 7.0 ← 7 ‖ 0.5 ← Fraction(1, 2)
0.3 ← Fraction(3, 10) ¦ 0.1 + 0.2 ‖ 0.3333333333333333 ← Fraction(1, 3) ¦ Decimal(1) / Decimal(3) ‖ 1e22 ← 10**22
{'1': 2} ← {1: 2} ‖ {'null': 1, 'true': 2, '1.5': 3} ← {None: 1, True: 2, 1.5: 3} ‖ {'-3': [1, 2]} ← {-3: (1, 2)}
{'a': {'1': [2]}} ← {'a': {1: (2,)}} ‖ {'a': 2, 'b': 1} ← Counter('aab') ‖ {'a': 0.3} ← {'a': 0.1 + 0.2} ‖ null ← None
[true, false, null] ← (True, False, None) ‖ 'x' ← 'x' ‖ [1, 2.0, 3] ← (1.0, 2, Fraction(3)) ‖ 5 ← IntEnum('N', {'A': 5}).A
""")
LENIENT_DIFFERENT = pairs("""
10**12 ← 1000000000500.0 ¦ Decimal('1000000000000.5') ‖ 9007199254740881 ← 9007199250000000.0
7 ← 7.000000001 ¦ 7.0000000000001 ¦ 6.999999999999999 ¦ Fraction(70000000001, 10**10)
7 ← Decimal('7.00000000000000000000000000001') ¦ '7' ¦ 7 + 0j ¦ nan ‖ 0 ← 1e-10 ¦ 5e-324 ¦ False ‖ 1e12 ← 10**12 + 500
1 ← True ‖ 10**400 ← inf ¦ 10**400 + 1 ‖ 999999937 ← 999999937.4 ‖ [10**9, 2 * 10**9] ← [1e9 + 0.5, 2e9 + 1]
100000 * 100001 * 200001 // 6 ← 100000**3 / 3 + 100000**2 / 2 ‖ 2**60 ← 2.0**60 + 512 ‖ 10**23 ← 1e23 ‖ 10**15 ← 1e15 + 1
true ← 1 ¦ 1.0 ‖ false ← 0 ‖ null ← 0 ¦ 'null' ‖ 1e22 ← 10**22 + 1 ‖ 7.5 ← 7 ‖ 0.1 ← Fraction(1, 9)
[1, 2] ← [2, 1] ¦ {1, 2} ¦ deque([1, 2]) ¦ iter([1, 2]) ¦ '12' ‖ [0, 1] ← range(3) ‖ [[0, 1]] ← [range(1)]
{'1': 'x'} ← {1: 'x', '1': 'x'} ¦ {1: 'y'} ¦ {1.0: 'x'} ‖ {'1': 1} ← {1: 1.0000001} ‖ {} ← [] ‖ [] ← {} ¦ null
{'a': 10**12} ← {'a': 1e12 + 1} ‖ [10**12] ← [Decimal('1000000000000.000001')]
""")
"""With ``lenient``, for values that came from JSON."""
