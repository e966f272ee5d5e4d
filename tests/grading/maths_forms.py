r"""Mathematical answers: forms of right ones, and wrong ones that look like them.

``HONEST`` names, for an accepted answer, other ways to write it. Left out, because they do not say the same or cannot be told
apart from what does not:

- a decimal comma (``3,14``): it separates two answers as well;
- ``no solution`` for the empty set: the words may also say that nothing was found;
- a point for an interval, an open interval that is written as an inequality for ``(1,2)``, which is a point unless a keyword
  says otherwise (``equality_maths``), a list for an ordered pair with other brackets;
- words for numbers (``three``);
- a rounded decimal (``1.414`` for a root): where an exact answer is known it is asked for.
"""

from tests.tables import forms, pairs


def _filled(template: str, **values: object) -> str:
    for name, value in values.items():
        template = template.replace(name, str(value))
    return template


_NUMBER = r"N ← ␣N␣ ¦ N. ¦ +N ¦ N.0 ¦ N.00 ¦ $N$ ¦ \(N\) ¦ \[N\] ¦ x=N ¦ x = N ¦ \text{N}"
_NEGATIVE = "-N ← −N ¦ –N ¦ —N ¦ ‒N ¦ －N ¦ - N ¦ $-N$ ¦ x=-N.0"
_FRACTION = r"""
\frac{A}{B} ← \dfrac{A}{B} ¦ \tfrac{A}{B} ¦ A/B ¦ A / B ¦ $A/B$ ¦ A∕B ¦ \frac{C}{D} ¦ \left(\frac{A}{B}\right)
-\frac{A}{B} ← -A/B ¦ \frac{-A}{B} ¦ \frac{A}{-B} ¦ −\dfrac{A}{B}"""
_POWER = r"N ← MeP ¦ MEP ¦ M\times 10^{P} ¦ M \cdot 10^{P} ¦ M×10^P ¦ M*10^P"
_MIXED = r"\frac{C}{B} ← W A/B ¦ W\frac{A}{B} ¦ W \frac{A}{B} ¦ W\tfrac{A}{B} ¦ W+\frac{A}{B}"
_GROUPED = [",", "{,}", " ", "\\,", "\\ ", "\u2009", "\u00a0", ",\\!", "~"]
_NUMBERS = [
    *(_filled(_NUMBER, N=number) for number in (0, 1, 2, 7, 12, 42, 100, 365)),
    *(_filled(_NEGATIVE, N=number) for number in (3, 17, 250)),
    *(_filled(_FRACTION, A=a, B=b, C=2 * a, D=2 * b) for a, b in ((1, 2), (3, 4), (2, 7), (13, 5), (22, 7), (1, 100))),
    *(f"{n} ← {f'{n:,}'.replace(',', mark)}" for n in (1234, 56789, 1234567, 1000000) for mark in _GROUPED),
    *(f"{n} ← {n}.0 ¦ \\${n:,} ¦ {n:,} dollars" for n in (1234, 56789, 1234567, 1000000)),
    *(_filled(_POWER, N=n, M=m, P=p) for n, m, p in ((10**6, 1, 6), (2500, 2.5, 3), ("0.00012", 1.2, -4), (3 * 10**8, 3, 8))),
    *(_filled(_MIXED, W=w, A=a, B=b, C=w * b + a) for w, a, b in ((1, 1, 2), (2, 3, 4), (10, 1, 3), (3, 5, 8))),
]
_WRITTEN = r"""
\sqrt{2} ← √2 ¦ √(2) ¦ √{2} ¦ \sqrt2 ¦ \sqrt 2 ¦ sqrt(2) ¦ 2^{1/2} ¦ 2^(1/2) ¦ 2^{\frac12} ¦ 2**(1/2) ¦ $\sqrt{2}$
2\sqrt{3} ← 2√3 ¦ 2 √3 ¦ 2·√3 ¦ 2*sqrt(3) ¦ 2sqrt(3) ¦ 2\cdot\sqrt{3} ¦ 2 \sqrt 3 ¦ \sqrt{12} ¦ √12 ¦ 2\times√3
\frac{\sqrt{2}}{2} ← √2/2 ¦ \frac{1}{\sqrt{2}} ¦ \frac{1}{\sqrt2} ¦ sqrt(2)/2 ¦ \dfrac{√2}{2} ¦ 1/√2
\sqrt[3]{2} ← ∛2 ¦ 2^{1/3} ¦ 2^(1/3) ¦ \sqrt[3]2
x^2 ← x² ¦ x^{2} ¦ x**2 ¦ x\cdot x ¦ x*x ¦ $x^2$ ¦ x ^ 2
x^2+2x+1 ← x²+2x+1 ¦ (x+1)^2 ¦ (x+1)² ¦ 1+2x+x^2 ¦ x^2 + 2*x + 1 ¦ x^2+2\cdot x+1 ¦ (1+x)**2
x^{10} ← x¹⁰ ¦ x**10 ¦ x^(10)
x^{-1} ← x⁻¹ ¦ 1/x ¦ \frac{1}{x} ¦ \frac1x ¦ x^-1 ¦ x**(-1)
a_1+a_2 ← a₁+a₂ ¦ a_{1}+a_{2} ¦ a_2+a_1
\frac{1}{2} ← ½ ¦ 0.5 ¦ .5 ¦ 0.50 ¦ \frac12 ¦ \frac 12 ¦ \frac 1 2 ¦ 1⁄2 ¦ \cfrac{1}{2} ¦ 2^{-1} ¦ １/２
\frac{3}{4} ← ¾ ¦ 0.75 ¦ \frac34 ¦ 3⁄4 ¦ 75/100
\frac{3}{2} ← 1½ ¦ 1 ½ ¦ 1.5 ¦ \frac32
\frac{1}{3} ← ⅓ ¦ \frac13 ¦ 2/6
\infty ← ∞ ¦ +\infty ¦ +∞ ¦ infinity ¦ inf ¦ oo
-\infty ← -∞ ¦ −∞ ¦ –∞ ¦ -infinity
\pi ← π ¦ pi ¦ 𝜋 ¦ 1\pi
2\pi ← 2π ¦ 2 π ¦ 2pi ¦ 2*pi ¦ \pi\cdot 2 ¦ 2\cdot\pi ¦ 2 \pi
\frac{\pi}{4} ← π/4 ¦ \pi/4 ¦ pi/4 ¦ \frac14\pi ¦ \frac{1}{4}\pi ¦ 0.25\pi ¦ ¼π
9\pi r ← 9πr ¦ 9 \pi r ¦ \pi r\cdot 9 ¦ 9\pi\cdot r
\emptyset ← \varnothing ¦ ∅ ¦ \{\} ¦ $\emptyset$ ¦ \O
(1,2) ← (1, 2) ¦ \left(1,2\right) ¦ ( 1 , 2 ) ¦ \left( 1, 2.0 \right) ¦ (1,\,2) ¦ \big(1,2\big)
[1,2] ← [1, 2] ¦ \left[1,2\right] ¦ 1≤x≤2 ¦ 1\le x\le 2 ¦ 1\leq x\leq 2 ¦ 1 <= x <= 2 ¦ x\in[1,2] ¦ 2≥x≥1
[1,2] ← 1\leqslant x\leqslant 2
(1,2] ← 1<x≤2 ¦ 1<x\le2 ¦ x\in(1,2] ¦ 1 < x <= 2
[0,\infty) ← x≥0 ¦ x\ge 0 ¦ x\geq0 ¦ [0,∞) ¦ 0≤x ¦ [0,+\infty) ¦ x>=0 ¦ \left[0,\infty\right) ¦ x \in [0, \infty)
(-\infty,3) ← x<3 ¦ 3>x ¦ (-∞,3) ¦ (-\infty, 3) ¦ x\lt3 ¦ -\infty<x<3
x>3 ← 3<x ¦ x > 3 ¦ x\gt 3 ¦ (3,\infty) ¦ (3,∞) ¦ $x>3$
x\neq 3 ← x≠3 ¦ x\ne 3 ¦ \neq 3 ¦ ≠3 ¦ x != 3
1<x<2 ← (1,2) ¦ 1 < x < 2 ¦ x\in(1,2) ¦ 2>x>1
(-\infty,1)\cup(2,\infty) ← (-∞,1)∪(2,∞) ¦ (-\infty, 1) \cup (2, \infty) ¦ x\in(-\infty,1)\cup(2,\infty)
(-\infty,1)\cup(2,\infty) ← (2,\infty)\cup(-\infty,1)
\{1,2\} ← \{2,1\} ¦ \left\{1,2\right\} ¦ \{1, 2\} ¦ \lbrace 1,2 \rbrace ¦ $\{1,2\}$ ¦ {1,2}
\{1,2,3\} ← \{3,1,2\} ¦ \{1, 2, 3\} ¦ {3, 2, 1}
1,2 ← 2,1 ¦ 1, 2 ¦ 1\text{ and }2 ¦ 1\text{ or }2 ¦ 1 and 2 ¦ 1;2 ¦ x=1,x=2 ¦ x=1\text{ or }x=2 ¦ x = 1 or x = 2
x=1,y=2 ← y=2,x=1 ¦ x=1, y=2 ¦ x=1\text{ and }y=2 ¦ (x,y)=(1,2) ¦ (1,2) ¦ 1,2 ¦ x = 1.0, y = 4/2 ¦ x=1; y=2
x=1,x=2 ← 1,2 ¦ 2,1 ¦ x=2,x=1 ¦ x=1 or x=2 ¦ x=1\text{ or }x=2
(x,y)=(1,2) ← (1,2) ¦ x=1,y=2 ¦ y=2, x=1 ¦ (x, y) = (1, 2)
x=5 ← 5 ¦ x = 5 ¦ 5.0 ¦ x=\frac{10}{2} ¦ $x=5$
5 ← x=5 ¦ y = 5 ¦ n=5 ¦ f(x)=5 ¦ k=5.0 ¦ 5\text{ cm} ¦ 5 cm ¦ 5\,\mathrm{cm} ¦ 5 meters ¦ \$5 ¦ 5 dollars ¦ 5 units
5 ← 5\text{ hours} ¦ 5 apples ¦ 5\text{ red apples} ¦ 2+3=5 ¦ x=2+3=5 ¦ 5\%
y=2x+1 ← 2x+1 ¦ y=1+2x ¦ y = 2x + 1 ¦ y=2\cdot x+1 ¦ y = 2*x + 1
f(x)=x^2 ← x^2 ¦ x² ¦ f(x) = x^2 ¦ f(x)=x\cdot x
12\text{ cm}^2 ← 12 ¦ 12 cm^2 ¦ 12 cm² ¦ 12\text{ cm}^2 ¦ 12\ \mathrm{cm}^2 ¦ 12\,\text{cm}^{2} ¦ 12 square centimeters
12\text{ cm}^2 ← 12 sq cm ¦ 12cm^2 ¦ 0.0012 m^2 ¦ 1200\text{ mm}^2
12 ← 12 cm^2 ¦ 12 cm² ¦ 12 square units ¦ 12\text{ square centimeters} ¦ 12 kg ¦ 12\text{ km/h} ¦ 12 miles per hour
12 ← 12 min ¦ 12 m ¦ 12 s
5\text{ cm} ← 5 cm ¦ 5 ¦ 0.05 m ¦ 50 mm ¦ 5 centimeters ¦ 5\,\mathrm{cm} ¦ 5.0\text{ cm}
90\text{ minutes} ← 1.5 hours ¦ 90 min ¦ 90 ¦ 1\frac12\text{ hours} ¦ 5400 s
60\text{ km/h} ← 60 ¦ 60 km/h ¦ 60 km per hour ¦ 60\text{ km}/\text{h}
45^\circ ← 45 ¦ 45° ¦ 45^{\circ} ¦ 45 degrees ¦ 45\text{ degrees} ¦ 45\degree ¦ 45º
90 ← 90° ¦ 90^\circ ¦ 90 degrees
50\% ← 50% ¦ 50 \% ¦ 50 percent ¦ 50.0\% ¦ \frac{1}{2} ¦ 0.5
1+2i ← 2i+1 ¦ 1 + 2i ¦ 1+2\cdot i ¦ 1+2*i
\text{Monday} ← Monday ¦ monday ¦ \text{monday} ¦ \textbf{Monday} ¦ \mathrm{Monday}
\text{(C)} ← C ¦ (C) ¦ \text{C} ¦ \textbf{(C)} ¦ \mathrm{(C)}
C ← (C) ¦ \text{C} ¦ \text{(C)} ¦ \textbf{C}
\text{yes} ← yes ¦ Yes ¦ \text{Yes} ¦ YES
ABCD ← \text{ABCD} ¦ ABCD
xy ← yx ¦ x\cdot y ¦ x y ¦ x*y ¦ xy
abc ← cab ¦ a\cdot b\cdot c ¦ bca
2xy ← 2yx ¦ 2\cdot x\cdot y ¦ xy\cdot 2 ¦ 2 x y
\frac{x}{2} ← x/2 ¦ \frac12x ¦ 0.5x ¦ \frac{1}{2}x ¦ ½x
\frac{x+1}{x-1} ← (x+1)/(x-1) ¦ \dfrac{x+1}{x-1} ¦ \frac{1+x}{x-1} ¦ \frac{-x-1}{1-x}
e^2 ← e² ¦ e^{2} ¦ e\cdot e
\ln 2 ← \ln(2) ¦ \ln{2}
\log_2 3 ← \log_{2}3 ¦ \log_2(3) ¦ \log_{2}{3} ¦ \frac{\ln 3}{\ln 2}
\sin x ← \sin(x) ¦ \sin{x}
2^{10} ← 1024 ¦ 2^10 ¦ 2**10 ¦ 4^5
10! ← 3628800 ¦ 3,628,800
\binom{5}{2} ← 10 ¦ \dbinom{5}{2} ¦ {5 \choose 2}
3:4 ← 3:4 ¦ 3 : 4
\begin{pmatrix}1\\2\end{pmatrix} ← \begin{pmatrix} 1 \\ 2 \end{pmatrix} ¦ \begin{bmatrix}1\\2\end{bmatrix}
|x| ← \left|x\right| ¦ \lvert x\rvert ¦ | x |
x\le 2 ← x≤2 ¦ x\leq2 ¦ x<=2 ¦ 2\ge x ¦ (-\infty,2] ¦ x \leqslant 2
\theta ← θ
n(n+1)/2 ← \frac{n(n+1)}{2} ¦ \frac{n^2+n}{2} ¦ \frac12n(n+1) ¦ ½n(n+1)
0.333 ← 0.333 ¦ .333 ¦ \frac{333}{1000}
-3 ← –3 ¦ −3 ¦ - 3 ¦ -3.0 ¦ -3. ¦ -\frac{6}{2} ¦ x=-3 ¦ x = –3
"""


HONEST: dict[str, list[str]] = {
    gold: list(dict.fromkeys([gold, *replies])) for gold, replies in forms("\n".join(_NUMBERS) + _WRITTEN).items()
}

WRONG = pairs(r"""
5 ← (3+\frac{1}{0}) ¦ 5 million ¦ 5 thousand ¦ 5x ¦ x ¦ -5 ¦ 50 ¦ 0.5 ¦ ∞ ¦ nan ¦ 1,2,3,4,5,6,7,8,9 ¦ 5,6 ¦ 4=5 ¦ 5=4
5 ← x=x ¦ 0=0 ¦ 5=6=5 ¦ 5 or anything ¦ \text{5 or 6} ¦ x=5,6 ¦ 5\pm 1 ¦ 0.05 ¦  ¦ ␣ ¦ ? ¦ \boxed{} ¦ $ ¦ \text{} ¦ {}
5 ← () ¦ - ¦ answer ‖ \frac{7}{2} ← -(3+\frac{1}{0}) ‖ (3+\frac{1}{0}) ← 5 ‖ \frac{11}{2} ← 1 1/2 ‖ 11/2 ← 1 1/2
\frac{1}{2} ← 1\frac12 ¦ 2 ¦ \frac{2}{1} ‖ 34 ← 3 4 ¦ 3\,4 ‖ 12 ← 3 4 ‖ 123 ← 1 2 3 ¦ 1 23 ‖ 1234 ← 12 34 ¦ 12,34
1 ← 1 000 ¦ 1,000 ¦ 1,2 ¦ 1 or 2 ‖ \frac{3}{2} ← 3 1/2 ‖ 27/3 ← 2 7/3 ‖ EDCBA ← ABCDE ‖ ABCDE ← EDCBA ¦ BACDE
ABCD ← DCBA ‖ AB ← BA ‖ ABC ← \text{CBA} ‖ silent ← listen ‖ \text{on} ← \text{no} ‖ \text{yes} ← \text{No}
\text{Monday} ← Sunday ‖ \text{five} ← 5
x=1,y=2 ← 2,1 ¦ (2,1) ¦ x=2,y=1 ¦ y=1,x=2 ¦ 1 ¦ x=1 ¦ 1,2,3 ¦ x=1,y=2,z=3 ¦ a=1,b=2 ‖ (x,y)=(1,2) ← (y,x)=(1,2) ¦ 2,1
3 ← \neq 3 ¦ <3 ¦ >3 ¦ \leq 3 ¦ ≤3 ¦ ≠3 ¦ x<3 ¦ 3m ‖ x=3 ← x\neq3 ‖ x>3 ← 3 ¦ x<3 ¦ x\geq3 ¦ 3>x ‖ x\neq 3 ← 3 ¦ \neq 4
x\geq 3 ← x>3 ‖ x<3 ← x\le3 ‖ [1,2] ← 1<x<2 ¦ (1,2)
(1,2) ← 1\le x<2 ¦ (1,3) ¦ 1<x<3 ¦ x>1 ¦ 2<x<1 ¦ x\in[1,2] ¦ (2,1) ¦ (1,2,3) ¦ [1,2] ‖ (1,2] ← [1,2)
(-\infty,1)\cup(2,\infty) ← (-\infty,1)\cup(3,\infty) ‖ 5\text{ cm} ← 5 m ¦ 5\text{ m} ¦ 0.5 m ‖ 5 m ← 5 km ¦ 5 g
5 cm ← 5 cm^2 ¦ 5 seconds ¦ 50 cm ¦ 6 cm ‖ 5\text{ cm}^2 ← 5\text{ cm}^3 ‖ 5\text{ g} ← 5 kg ‖ 5 minutes ← 5 hours
5 cents ← 5 dollars ‖ 5 radians ← 5^\circ ‖ 60\text{ km/h} ← 60 m/s ‖ 90\text{ minutes} ← 1 hour ‖ 5 pears ← 5 apples
2 ← 2 dozen ¦ 1/2 ‖ 3m ← 3 ‖ 5x ← 5 ‖ 5m ← 5n ‖ -5 ← 5 ‖ 0.5 ← 5 ‖ 35 ← 3.5 ‖ 1e5 ← 1e6 ‖ 10^5 ← 10^6 ‖ 15000 ← 1.5e3
1e6 ← 1e-6 ‖ 1000000 ← 1000 ‖ 1,235 ← 1,234 ‖ 41 ← 42 ‖ 42 ← 42.5 ¦ 42.1 ‖ \frac{1}{3} ← 0.34 ¦ 0.3 ‖ \pi ← 3 ¦ 3.1 ¦ 22/7
\sqrt{2} ← \sqrt{3} ¦ √3 ¦ 2 ¦ \sqrt[3]{2} ¦ -\sqrt{2} ¦ 1.4 ‖ x^2 ← x2 ¦ x³ ¦ 2x ¦ x ¦ y^2 ¦ x^{20}
(x+1)^2 ← x^2+2x+2 ¦ x^2+1 ‖ -\infty ← \infty ‖ \infty ← 5 ¦ \pm\infty ¦ nan ‖ 0 ← nan ¦ \emptyset ¦ . ‖ 10^{300} ← inf
\emptyset ← 0 ¦ \{0\} ¦ \{\emptyset\} ‖ \{1,2\} ← \{1\} ¦ \{1,2,3\} ‖ \{1,3\} ← \{1,2\} ‖ 1,3 ← 1,2 ‖ 1,2 ← 1,2,3 ¦ 1
x=5 ← x=5 or x=6 ¦ y=5 ‖ 50\% ← 0.05 ¦ 5000\% ¦ \frac{1}{50} ¦ 51\% ‖ 54^\circ ← 45^\circ ‖ 1+2i ← 1-2i ¦ 2+i ¦ 1+2
-1 ← i ‖ (1,2,3) ← (1,2) ‖ (2,1) ← ((1,2)) ‖ B ← A ¦ A B C D ‖ (B) ← (A) ‖ A ← A,B ¦ AB ¦ \text{A or B} ‖ \text{(B)} ← a
C ← ABCDE ‖ \text{no} ← yes ‖ \frac{x-1}{x+1} ← \frac{x+1}{x-1} ‖ \cos x ← \sin x ‖ \ln 2 ← \ln 3 ‖ 2^{10} ← 2^{11}
10! ← 9! ‖ e^2 ← e ‖ 2\pi ← \pi ‖ 3:4 ← 4:3 ‖ 4/3 ← 3/4
\begin{pmatrix}1\\2\end{pmatrix} ← \begin{pmatrix}2\\1\end{pmatrix} ‖ |x| ← |y| ‖ n(n+1)/2 ← n(n-1)/2
y=2x+1 ← 2x+2 ¦ y=x+1 ¦ x=2y+1 ‖ f(x)=x^2 ← f(x)=x^3 ¦ x^2+x^2 ‖ y=5x ← y=5
""")
