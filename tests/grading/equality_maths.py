r"""Pairs that the maths grader must find equal, and pairs that it must not, written from docs/reference/equality.md.

The pairs of ``EQUAL`` and ``DIFFERENT`` are in the default readings; those of ``READINGS`` name theirs.
"""

from tests.tables import Pair, pairs

EQUAL = pairs(r"""
5 ← 5.0 ¦ +5 ¦ 05 ¦ 5. ¦ {}5 ¦ (5) ¦ x=5 ¦ =5 ¦ ≈5 ¦ 5.00 ¦ \approx 5 ¦ ５ ¦ ٥ ¦ 10/2 ¦ \frac{10}{2} ¦ \sqrt{25} ¦ 5^1
5 ← 2+3 ¦ 3!-1 ¦ (5 ¦ 5) ¦ 5, ¦ 5; ¦ 5 , ¦ --5 ¦ - -5 ¦ -(-5) ¦ |-5| ¦ x\approx5 ¦ x ≈ 5 ¦ 5 cm ¦ 5 \text{ cm}^2 ¦ 5 km/h
5 ← 5 square feet ¦ 5 years ¦ 5 years old ¦ 5 liters ¦ 5 kg ¦ 5 miles per hour ¦ 5 feet ¦ 5^\circ ¦ 5 inches ¦ \$5
5 ← 5 dollars ¦ 5 euros ¦ 5 cents ¦ €5 ¦ £5 ¦ 5\$ ¦ \$5.00 ¦ 5 apples ¦ 5 red apples ¦ 5 cups of flour ¦ 5 total
5 ← 5 people ¦ 5 children ¦ 5 solutions ¦ 5 distinct ways ¦ 5 different real solutions ¦ 5 boxes ¦ 5 students
5 ← 5 zucchinis ¦ 5 positive integers ¦ 5 in total ¦ 5 fish ¦ 5 marbles left ¦ f(2)=5 ¦ AB=5 ¦ P(A)=5 ¦ \text{Area}=5
5 ← \lim_{x\to0}f(x)=5 ¦ x+y=5 ¦ 5=x ¦ S_{10}=5 ¦ \text{Area of } ABC = 5 ¦ |AB|=5 ¦ \overline{AB}=5 ¦ f(g(2))=5 ¦ a_n=5
5 ← a_{10} = 5 ¦ [ABC]=5 ¦ \text{gcd}(a,b)=5 ¦ 2x+1=5 ¦ \text{The answer}=5 ¦ n = 2+3 = 5 ¦ f(2)=2^2+1=5 ¦ 2+3=5 ¦ 10/2=5
5 ← x=10/2=5 ¦ \sqrt{25}=5 ¦ A=\frac12\cdot2\cdot5=5 ¦ 5\phantom{6} ¦ \phantom{6}5 ¦ \color{red}{5} ¦ {\color{red}5}
5 ← \textcolor{blue}{5} ¦ \fbox{5} ¦ \boxed{5} ¦ \mathbf{5} ¦ \underline{5} ¦ \large 5 ¦ 5 \pm 0 ¦ \lim_{x\to 0}f(x)=5
5 ← x\approx 5 ¦ ⑤ ¦ 5 km ¦ ~5 ¦ \mathbb{5}
\frac{1}{2} ← 0.5 ¦ \frac12 ¦ ½ ¦ 2^{-1} ¦ .5 ¦ 1/2 ¦ 5/10 ¦ 0.50 ¦ \dfrac{2}{4} ¦ 1 half ¦ one\text{ }half=\frac12 ¦ 50\%
\frac{1}{2} ← 1 \text{ half} ¦ P(X>1)=\frac12 ‖ -5 ← −5 ¦ –5 ¦ - 5 ¦ x=-5 ¦ -(5) ¦ -5.0 ¦ (-5) ¦ ---5
1234 ← 1,234 ¦ 1 234 ¦ 1\,234 ¦ 1{,}234 ¦ 1234.0 ¦ 1,234. ¦ 1,\!234
1000000 ← 1.000.000 ¦ 1,000,000 ¦ 1 000 000 ¦ 1 million ¦ 10^6 ¦ 1e6 ¦ 1000 thousand ¦ 1000000 people
0.25 ← .25 ¦ 1/4 ¦ 25\% ¦ 0.250 ¦ 1 quarter ¦ 1 fourth ¦ 25 hundredths ¦ 25 percent
2500 ← 2.5e3 ¦ 2.5\times10^3 ¦ 2.5*10^3 ¦ 2.5x10^3 ¦ 2.5 x 10^{3} ¦ 2.5·10³ ¦ 2.5 thousand ¦ 25 hundred ¦ 2.5E3 ¦ 2,500
\frac{3}{2} ← 1 1/2 ¦ 1\frac12 ¦ 1½ ¦ 1 and a half ¦ 1.5 ¦ 3 halves ¦ 150\% ¦ 15 tenths
\frac{1}{3} ← 0.\overline{3} ¦ 0.\bar3 ¦ 0.\dot3 ¦ 0.(3) ¦ 0.333... ¦ 0.3333\ldots ¦ 0.33… ¦ 0.\overline{33}
\frac{1}{3} ← .\overline{3} ¦ 0.\bar{3} ¦ 1 third ¦ 0.\dot{3} ‖ 2 ← 1.\overline{9} ¦ 1.999... ¦ 2 ¦ 4/2 ¦ 1.\dot9
0.\overline{3} ← 0.\overline{33} ¦ 1/3 ¦ \frac13 ¦ 0.333... ‖ 0.1\overline{6} ← 1/6 ¦ 0.1666... ¦ 0.1(6) ¦ \frac{1}{6}
\frac{4}{33} ← 0.\overline{12} ¦ 0.121212... ¦ 0.(12) ‖ \frac{1}{7} ← 0.\overline{142857} ¦ 0.142857142857...
1010_2 ← 1010_{2} ¦ (1010)_2 ¦ 1010_{\text{two}} ¦ 1010 base 2 ¦ 1010_{two} ¦ 1010 \text{ base } 2 ¦ 1010_{(2)}
1010_2 ← 1010 base two ‖ 2A_{16} ← 2a_{16} ¦ (2A)_{16} ¦ 2A \text{ base 16} ¦ \text{2A}_{16}
13_8 ← 13_{8} ¦ 13_{\text{eight}} ¦ (13)_8 ¦ 13 \text{ (base 8)}
5 pm ← 5 p.m. ¦ 5:00 PM ¦ 17:00 ¦ 5pm ¦ 5:00 p.m. ¦ 5 \text{ p.m.} ¦ 5:00\text{ PM} ¦ 5 PM
10:30 \text{ a.m.} ← 10:30 am ¦ 10:30 AM ¦ 10:30am ¦ 10:30\text{ AM} ‖ 10:30 ← 10:30 am ¦ 10:30 pm ¦ 10:30 \text{ a.m.}
12:15 am ← 0:15 ¦ 12:15 a.m. ¦ 00:15 ‖ 3:4 ← 3/4 ¦ 6:8 ¦ 3 : 4 ¦ \frac{3}{4} ¦ 0.75 ¦ 3\colon4 ‖ \frac{1}{0} ← \frac{1}{0}
\infty ← +\infty ¦ ∞ ¦ oo ¦ infinity ¦ +∞
5 \text{ m} ← 500 cm ¦ 5 m ¦ 5 ¦ 5 meters ¦ 5 metres ¦ 0.005 km ¦ 5000 mm ¦ x=5 m
\$5 ← 500 cents ¦ 5 dollars ¦ 5 ¦ 5.00 ¦ \$5.00 ¦ 5 \text{ dollars}
7 ← 7 pairs ¦ 7 ordered pairs ¦ 7 pairs of shoes ¦ 7 squares ¦ 7 sides ¦ 7 cubes ¦ 7 percents ¦ 7 prime
1 \text{ apple} ← 1 apples ¦ 1 ¦ 1 apple ‖ 12 \text{ boys} ← 12 boy ¦ 12 ¦ 12 boys
24 ← 2 dozen ¦ 2 dozens ¦ 24 eggs ¦ 2 dozen eggs ‖ 0.05 ← 5 hundredths ¦ 5 percent ¦ 5\% ¦ 5/100
\frac{2}{3} ← 2 thirds ¦ 2/3 ¦ 2\text{ thirds} ¦ 4 sixths ‖ 120 ← 5 factorial ¦ 5! ¦ 12 tens ¦ 10 dozen
49 ← 7 squared ¦ 7^2 ¦ 7² ¦ 7\text{ squared} ‖ 125 ← 5 cubed ¦ 5^3 ¦ 5³ ‖ 0.007 ← 7 permille ¦ 7‰ ¦ 7 thousandths ¦ 0.7\%
0.0007 ← 7 basis points ¦ 7 ten thousandths
2000000 ← 2 million people ¦ 2 million ¦ 2 \text{ million} ¦ 2 million dollars ¦ 20 hundred thousand
5000000000 ← 5 billion ¦ 5\times10^9 ¦ 5000 million ‖ 144 ← 1 gross ¦ 12 dozen ¦ 12 dozens ‖ 60 ← 3 score ¦ 5 dozen
1 ← 7 sevenths ¦ 2 halves ¦ 4 quarters ¦ 100\% ¦ \sin^2x+\cos^2x ¦ e^0 ¦ \ln e ¦ \log 10 ¦ 3-2
50\% ← 0.5 ¦ 50 ¦ \frac12 ¦ 50 percent ¦ 50% ¦ 50.0\% ¦ 50 percentage points
12.5 ← 12.5\% ¦ 12.5 percent ¦ 12\frac12\% ¦ 12\frac12
6 ← the answer is 6 ¦ \text{The answer is }6 ¦ answer: 6 ¦ The final answer is 6. ¦ so the result is 6 ¦ \gcd(12,18)
6 ← 5\text{ is wrong, the answer is }6
\frac12 ← P(X>1)=\frac12 ¦ P(A\cap B)=0.5 ¦ \Pr(X=1)=\frac12 ¦ \sin\theta=\frac12 ¦ \cos 60^\circ=\frac12 ¦ P=\frac{1}{2}
\frac12 ← 1 half
60^\circ ← \angle ABC=60^\circ ¦ \angle A = 60 ¦ m\angle ABC=60^\circ ¦ \theta=60^\circ ¦ 60 degrees ¦ \frac{\pi}{3} ¦ 60°
60^\circ ← \frac{\pi}{3}\text{ radians}
\frac{\pi}{2} ← 90^\circ ¦ 90 degrees ¦ \pi/2 ¦ \frac{\pi}{2} radians ¦ \frac{\pi}{2}\text{ rad}
x=1,y=2 ← y=2,x=1 ¦ (x,y)=(1,2) ¦ (1,2) ¦ 1,2 ¦ \begin{cases}x=1\\y=2\end{cases} ¦ x=1 and y=2 ¦ x = 1.0, y=4/2
\begin{cases}x=1\\y=2\end{cases} ← x=1,y=2 ¦ (1,2) ¦ y=2,x=1 ¦ \begin{cases} y=2 \\ x=1 \end{cases}
y=x+1 ← x+1 ¦ y-x=1 ¦ x-y=-1 ¦ y=1+x ¦ y-x-1=0 ‖ x+y=1 ← 2x+2y=2 ¦ y+x=1 ¦ x+y-1=0 ¦ y=1-x
x>5 ← 5<x ¦ (5,\infty) ¦ x\in(5,\infty) ¦ x > 5.0 ‖ (5,\infty) ← x>5 ¦ 5<x ¦ y>5 ¦ ]5,\infty[
1<x<2 ← (1,2) ¦ 2>x>1 ¦ x\in(1,2) ‖ [1,2] ← 1\leq x\leq2 ¦ x\in[1,2] ¦ [1.0,2] ¦ 1≤x≤2
xy ← yx ¦ x\cdot y ¦ x y ¦ x\times y ‖ C ← \text{(C)} ¦ (C) ¦ C. ¦ \textbf{(C)} ¦ \mathrm{C} ¦ (C) 5
\text{Monday} ← monday ¦ Monday ¦ MONDAY ¦ \text{monday} ¦ Monday.
\text{even function} ← even function ¦ Even function ¦ \text{Even Function}
B ← (B) ¦ B. ¦ \textbf{(B)} ¦ (B) 5 ¦ B) 5 ¦ B. 5 ¦ \textbf{(B)}\ 5 ¦ B: 5 ¦ \text{B} ‖ (B) 5 ← B ¦ 5 ¦ (B) ¦ (B) 5 ¦ 5.0
\textbf{(E)}\ 12 ← E ¦ 12 ¦ \text{(E)} ¦ (E) 12
1,2 ← 2,1 ¦ 1 and 2 ¦ 1;2 ¦ x=1 or x=2 ¦ \{1,2\} ¦ (1,2) ¦ 2 or 1 ¦ 1,\ 2 ¦ 1 \text{ and } 2 ¦ x=1,2 ¦ x\in\{1,2\}
2, 100 ← 100, 2 ¦ 100 and 2 ¦ \{2, 100\} ¦ x=2, x=100 ‖ 100, 200 ← 200, 100 ¦ 100 and 200 ¦ 100;200 ¦ \{100,200\}
1, 200, 300 ← 300,200,1 ¦ 300, 200, 1 ¦ \{1,200,300\} ‖ -1, 200 ← 200, -1 ¦ -1 and 200 ¦ x=200, x=-1
1,1 ← 1,1 ¦ 1, 1.0 ¦ 1 and 1 ‖ 5,-5 ← \pm5 ¦ -5,5 ¦ x=\pm5 ¦ 5 and -5 ¦ ±5 ¦ \pm 5 ‖ \pm 5 ← 5,-5 ¦ \{5,-5\} ¦ -5 or 5
1\pm\sqrt2 ← 1+\sqrt2, 1-\sqrt2 ¦ 1-\sqrt{2},1+\sqrt{2} ¦ x=1±√2 ‖ \{1,2\} ← \{2,1\} ¦ 1,2 ¦ \{1,2,2\} ¦ 2,1 ¦ {1,2}
\{5\} ← 5 ¦ {5} ¦ x=5 ‖ \emptyset ← \{\} ¦ ∅ ¦ \varnothing
(1,2) ← (1, 2.0) ¦ 1,2 ¦ \left(1,2\right) ¦ (x,y)=(1,2) ¦ (\frac22,2) ¦ P(1,2) ¦ P=(1,2)
(1,2),(3,4) ← (3,4),(1,2) ¦ \{(1,2),(3,4)\} ¦ (1,2) and (3,4) ¦ (3, 4), (1, 2)
(10,100) ← (10, 100) ¦ 10, 100 ¦ (10.0,10^2) ‖ (1,\infty) ← x>1 ¦ (1, \infty) ¦ x\in(1,\infty)
(1,2)\cup(3,4) ← (3,4)\cup(1,2) ¦ x\in(1,2)\cup(3,4) ¦ (1,2)∪(3,4)
(-\infty,1)\cup(2,\infty) ← x<1 or x>2 ¦ x>2 or x<1 ¦ (2,\infty)\cup(-\infty,1) ¦ x<1\text{ or }x>2
\begin{pmatrix}1&2\\3&4\end{pmatrix} ← \begin{bmatrix}1&2\\3&4\end{bmatrix} ¦ \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}
\begin{pmatrix}1&2\\3&4\end{pmatrix} ← \begin{pmatrix}1&2\\3&\frac82\end{pmatrix}
x^2+2x+1 ← (x+1)^2 ¦ 1+x(x+2) ¦ x²+2x+1 ‖ \sin^2 x+\cos^2 x ← 1 ‖ x+1 ← \frac{x^2-1}{x-1} ¦ 1+x
5050 ← \sum_{k=1}^{100}k ¦ 5,050 ¦ \frac{100\cdot101}{2} ‖ \frac13 ← \int_0^1x^2\,dx ¦ \frac26
3 ← 13\bmod5 ¦ 13 \bmod 10 ¦ 13 mod 5 ¦ \lfloor 3.7\rfloor ¦ \gcd(6,9) ¦ \max(1,3) ¦ 3.0 ¦ 03 ¦ 13 \bmod 5
56 ← \cancel{4}56 ¦ 56\xcancel{7} ‖ \mathbb{R} ← R ¦ ℝ ¦ \mathbb R ¦ \R ‖ i ← \sqrt{-1} ¦ i^5
\text{yes} ← Yes ¦ yes ¦ \text{Yes.} ‖ 2/3 ← 2 thirds ‖ x=2,100 ← 2100 ‖ 5,600 ← 5600 ‖ \{2,1\} ← 1,2 ‖ 0.5 ← 50\%
50 ← 50\% ‖ x=5 ← 5 ‖ x=5,y=6 ← (5,6) ‖ A ← (A) ‖ ab ← ba ‖ 2^{10} ← 1024 ‖ 1024 ← 2^{10} ‖ 1200 ← 1\,200 ‖ 3/4 ← 0.75
2 3/4 ← 2.75 ‖ 25 ← 5² ‖ 5 m ← 500 cm ‖ 5 hours ← 300 minutes ‖ 5 \text{ dollars} ← 500 cents
3 \text{ years} ← 36 months ‖ 1 week ← 7 days ‖ 90^\circ ← \frac{\pi}{2} ‖ \{0\} ← 0 ‖ \{1,2,2\} ← \{1,2\}
\begin{bmatrix}1\\2\end{bmatrix} ← \begin{pmatrix}1\\2\end{pmatrix} ‖ x ← x+0\cdot y ‖ 10 ← \binom{5}{2}
1/3 ← \int_0^1 x^2\,dx ‖ 56088 ← 123\cdot456 ‖ \log 100 ← 2 ‖ \log_{10} 100 ← 2 ‖ \ln e ← 1 ‖ 1.\overline{9} ← 2
0.3333... ← 1/3 ‖ 5... ← 5 ‖ nan ← nan ‖ 0 ← -0 ‖ 1,000,000 ← 1000000 ¦ 1.000.000 ‖ 2.5\times10^3 ← 2500 ‖ 2.5e3 ← 2500
true ← True ‖ (A) 5 ← 5 ‖ 100 ← 100 percentage points ‖ 0.07 ← 7 percents ‖ 3,500 ← 3500 ‖ x=3, 500 ← 500, 3
10, 100 ← 100, 10 ‖ x\in\mathbb{R} ← \mathbb{R} ‖ x\in(1,2) ← (1,2) ‖ f(x)=x^2 ← x^2 ‖ 2x+1 ← 1+2x
\frac{x^2-1}{x-1} ← x+1 ‖ 0.1+0.2 ← 0.3
""")

DIFFERENT = pairs(r"""
5 ← 5? ¦ 5' ¦ 5+ ¦ 5- ¦ 5= ¦ 5\ldots ¦ 5_6 ¦ \pm5 ¦ 5\pm1 ¦ 5_{6} ¦ ?5 ¦ 5'' ¦ 5* ¦ 5^ ¦ 5/ ¦ 5\cdot ¦ 5 5 ¦ 55 ¦ 5.5
5 ← 0.5 ¦ -5 ¦ 5i ¦ 5x ¦ 5e ¦ 5! ¦ 5!! ¦ 5^2 ¦ \frac15 ¦ \sqrt5 ¦ \neq5 ¦ \not=5 ¦ \neg5 ¦ <5 ¦ not 5 ¦ >5 ¦ \leq5 ¦ ≥5
5 ← \text{not }5 ¦ \lnot 5 ¦ x\neq5 ¦ x\not=5 ¦ ¬5 ¦ x<5 ¦ x \ne 5 ¦ \text{never }5 ¦ 5 million ¦ 5 hundredths
5 ← 5 factorial ¦ 5 dozen ¦ 5 millions ¦ 5 thousands ¦ 5 tenths ¦ 5 crore ¦ 5 hundreds ¦ 5 halves ¦ 5 squared ¦ 5 permille
5 ← 5 basis points ¦ 5 billions ¦ 5 tens ¦ 5 lakh ¦ 5 gross ¦ 5 thousandths ¦ 5 twelfths ¦ 5 double factorial
5 ← 5 degrees 30 minutes ¦ 5 and a half ¦ 5 million apples ¦ 5 wrong ¦ 5 negative ¦ 5 or six ¦ 5 modulo three
5 ← 5 point five ¦ 5 unless wrong ¦ 5 reciprocal ¦ 5 doubled ¦ 5 base seven ¦ 5 or maybe six ¦ 5 times ten ¦ 5 plus one
5 ← 5 minus one ¦ 5 divided by two ¦ 5 choose two ¦ 5 to the power of two ¦ 5 remainder one ¦ 5 if odd ¦ 5 but not really
5 ← 5 pi ¦ 5 times ¦ 5 or more ¦ at least 5 ¦ 5 and six ¦ 5 inverse ¦ 5 mod 3 ¦ 5 less than x ¦ 5 more than half
5 ← 5 percent of apples ¦ no 5 ¦ 5 is wrong ¦ half of 5 ¦ minus 5 ¦ negative 5 ¦ 5 over two ¦ twice 5 ¦ five ¦ 4=5 ¦ 5=6
5 ← a=6=5 ¦ 5=6=5 ¦ 2+2=5 ¦ x=5, y=6 ¦ x=5 or x=6 ¦ x=x ¦ 5=4 ¦ f(5)=6 ¦ AB=6 ¦ 5x=10 ¦ x=5y ¦ \{5\}\cup\{6\} ¦ 5\cup6
5 ← \{5,6\} ¦ (5,6) ¦ 5,6 ¦ 5;6 ¦ 5/6 ¦ 5 \quad 6 ¦ \phantom{5} ¦ \cancel{5} ¦ \cancel{5}6 ¦ 5 \color{white}{6}
5 ← \phantom{5}6 ¦ \xcancel{5} ¦ x ¦ a ¦ \\ ¦ nan ¦ \text{} ¦ \{\} ¦ () ¦ - ¦ five apples ¦  ¦ $ ¦ \frac{5}{0}
5 ← \text{no solution} ¦ \pm 5 ¦ 6=5 ¦ ²5 ¦ \neg 5 ¦ \neq 5 ¦ 5\text{ is wrong, the answer is }6 ¦ 5 6 ¦ 5\%6 ¦ 5%6
5 ← 5\mathbb{R} ‖ -5 ← 5 ¦ --5 ¦ |-5| ¦ +5 ¦ \pm5
1234 ← 1, 234 ¦ 12,34 ¦ 1 23 4 ¦ 1.234 ¦ 1,23,4 ¦ 1;234 ¦ 1 , 234 ¦ (1,234) ¦ 1,\ 234 ‖ 1.5 ← 1,5 ¦ 15 ¦ 1;5 ¦ 1 5
0.25 ← ,25 ¦ 0,25 ¦ 25 ¦ 0.025 ¦ 0.25\% ‖ 2500 ← 2.5 10 ¦ 2.5 103 ¦ 2.5e4 ¦ 2.5\times10 ¦ 2.5x^3 ¦ 2.5 million
\frac{3}{2} ← 1 3/2 ¦ 11/2 ¦ 1 and 1/2, 2 ¦ 2/3 ¦ 1 2 ‖ 12 ← 1 2 ¦ 1\,2 ¦ 1, 2 ¦ 1;2 ¦ 12 dozens
\frac{11}{2} ← 1 1/2 ¦ 1\frac12 ‖ 0.\overline{3} ← 0.3 ¦ 0.33 ¦ 0.\overline{34} ¦ 0.333 ¦ \overline{0.3}
0.3 ← 0.\overline{3} ¦ 0.(3) ¦ 0.333... ¦ 1/3 ‖ \frac13 ← 0.333333 ¦ 0.33333 ¦ 0.3\overline{4} ¦ 0.33 ¦ 0.3 ¦ 0.3333333333
\pi ← 3.14159... ¦ 3.14159 ¦ 3.14 ¦ 22/7 ¦ 3.141592653589793 ¦ 3.\overline{14} ¦ 3.14\ldots
\sqrt2 ← 1.414 ¦ 1.41421356 ¦ 1.4142135623730951 ¦ 1.41421356... ¦ -\sqrt2 ‖ \frac17 ← 0.142857 ¦ 0.142857... ¦ 0.14
0.67 ← \frac23 ‖ 1.0000000001 ← 1.0000000002 ¦ 1 ‖ 10^{-10} ← 0 ¦ 10^{-11}
1010_2 ← 1010_3 ¦ 1010 ¦ 10 ¦ 1011_2 ¦ 1010_{10} ¦ 1010_{16} ¦ 101_2 ¦ 10_{10} ¦ 1010 base 3
10 ← 1010_2 ¦ 10_2 ¦ 10_{16} ¦ 10 base 2 ¦ a_{16} ¦ 1²0 ‖ 13_8 ← 13 ¦ 13_9 ¦ 11 ¦ 31_8
2A_{16} ← 2B_{16} ¦ 2A ¦ 42 ¦ 2A_{15} ‖ 5 am ← 5 pm ¦ 5 ¦ 5:00 ¦ 17:00 ¦ 5 p.m. ¦ 6 am
10 am ← 10 ¦ 10 pm ¦ 10:00 ¦ 22:00 ‖ 5:30 pm ← 5:30 ¦ 5:30 am ¦ 5:03 pm ¦ 5:31 pm ¦ 5.5 pm
5:30 ← 5:03 ¦ 5.5 ¦ 1:6 ¦ 5:31 ¦ 11/2 ¦ 530 ‖ 3:4 ← 4:3 ¦ 4/3 ¦ 3,4 ¦ 34 ¦ 3:5
\frac{1}{0} ← \frac{2}{0} ¦ \infty ¦ 0 ¦ 1 ‖ 0 ← \frac00 ¦ 0/0 ¦ \frac{1}{0} ¦ \emptyset ¦ O ¦ o ¦ \frac{0}{0}
\text{undefined} ← \frac10 ¦ defined ¦ 0 ¦ \frac{1}{0} ‖ \infty ← -\infty ¦ 10^{300} ¦ 8 ¦ \frac{1}{0} ¦ \pm\infty
5 m ← 5 cm ¦ 5 m^2 ¦ 5 kg ¦ 5 km ¦ 50 cm ¦ 5 m/s ¦ 6 m ¦ 5 seconds ¦ 6 ‖ 20^\circ C ← 20^\circ F ¦ 21^\circ C
\$5 ← 5 cents ¦ \$6 ¦ 50 cents ¦ \$50 ¦ €5 ‖ 5 \text{ apples} ← 5 pears ¦ 6 apples ¦ 5 oranges ¦ 5 red pears
3 ← 3 halves ¦ 3 quarters ¦ 3 thirds ¦ 3 fourths ¦ 3 score ¦ 13\bmod4 ¦ 13 mod 4 ¦ 3,0 ¦ 3, 0 ¦ \lceil 3.7\rceil
2 ← 2 dozen ¦ 2 thirds ¦ 2 dozens ¦ 2 dozen eggs ‖ 14 ← 7 pairs ¦ 7 ¦ 7 couples ‖ 0.5 ← 0.5\% ¦ 5\% ¦ 500\% ¦ 0.5 percent
50 ← 0.5 ¦ 0.5\% ¦ 5\% ‖ 50\% ← 0.05 ¦ 5000\% ¦ \frac{1}{50} ¦ 51\% ¦ 5 ¦ 0.5\%
6 ← the answer is not 6 ¦ the answer is 7 ¦ 6 is not the answer ¦ the answer is 6 or 7 ¦ the answer is 6?
x=5 ← y=5 ¦ X=5 ¦ x=6 ¦ x_1=5 ¦ x\neq5 ¦ x>5 ‖ f(x)=x^2 ← g(x)=x^2 ¦ f(x)=x^3 ¦ f(y)=x^2
x=1,y=2 ← 2,1 ¦ x=1 ¦ x=2,y=1 ¦ (2,1) ¦ a=1,b=2 ¦ x=1,y=2,z=3 ¦ \begin{cases}x=2\\y=1\end{cases} ¦ 12
y=x+1 ← y=x+2 ¦ x+2 ¦ y-x=2 ¦ x=y+1 ¦ y+x=1 ‖ x+y=1 ← x+y=2 ¦ 1 ¦ x-y=1 ¦ x=1 ¦ x+z=1
x>5 ← y>5 ¦ x\geq5 ¦ 5 ¦ x<5 ¦ x>6 ¦ [5,\infty) ¦ x=5 ¦ 5>x ¦ x\neq5 ¦ x\geq 5 ‖ x\neq5 ← x=5 ¦ 5 ¦ x\neq6 ¦ y\neq5 ¦ x>5
e ← E ¦ 2.718281828 ¦ 2.71828 ¦ e^2 ‖ x ← X ¦ y ¦ x_1 ¦ 2x ¦ x^2 ¦ -x ¦ \chi ¦ x' ‖ x_1 ← x_2 ¦ x1 ¦ x ¦ X_1 ‖ 2E ← 2e
A^2 ← a^2 ¦ 2A ¦ A ‖ 5n ← 5m ¦ 5 ¦ 5N ¦ n ‖ ABCD ← DCBA ¦ abdc ¦ ABC ¦ A,B,C,D ‖ \text{red} ← der ¦ red dog ¦ erd
\text{even function} ← function even ¦ odd function ¦ even ‖ \text{five} ← 5 ¦ six
\text{Monday} ← Mon ¦ Tuesday ¦ Monday or Tuesday ¦ not Monday ¦ \text{Mon}
B ← A ¦ B or C ¦ (B) 5 (C) 6 ¦ B, C ¦ AB ¦ b ¦ (A) 5 ¦ not B ¦ B and C ¦ A. 5, B. 6
(B) 5 ← A ¦ 6 ¦ (A) 5 ¦ (C) ¦ B or C ¦ (B) 6 ‖ 1,1 ← 1 ¦ 1,1,1 ¦ 1,2 ¦ 11 ‖ 1 ← 1,1 ¦ 1, 2 ¦ \frac{0}{0}
1,2,3 ← 1,2 ¦ 123 ¦ 1,2,4 ¦ 1,2,3,4 ¦ 6 ‖ 1,2 ← 1 ¦ 12 ¦ 1,2,3 ¦ 1,1,2 ¦ 3 ¦ 1.2 ¦ (2,1) ¦ [1,2] ¦ 1/2
2, 100 ← 2100 ¦ 2,100 ¦ 100 ¦ 2 100 ¦ 102 ‖ 100, 200 ← 100200 ¦ 100,200 ¦ 300
1, 200, 300 ← 1200300 ¦ 1,200,300 ¦ 1, 200300 ‖ 1, 234 ← 1234 ¦ 1,234 ‖ 3, 500 ← 3500 ¦ 3,500 ¦ (3500)
(3, 500) ← 3500 ¦ (3500) ¦ 3,500 ¦ (500, 3) ¦ 500, 3 ‖ \{3, 500\} ← \{3500\} ¦ 3500 ‖ \pm5 ← 5 ¦ -5 ¦ \pm6 ¦ \mp6
5,-5 ← 5 ¦ -5 ¦ 5,5 ¦ \pm4 ‖ 1\pm\sqrt2 ← 1+\sqrt2 ¦ \pm\sqrt2 ¦ 1\pm\sqrt3 ¦ 2\pm\sqrt2
\{1,2\} ← (1,2) ¦ [1,2] ¦ \{1\} ¦ \{1,3\} ¦ (2,1) ¦ [1,2) ¦ \{1,2,3\} ¦ 1<x<2 ¦ 12 ‖ \{0\} ← \emptyset ¦ \{\} ¦ \{0,1\}
\emptyset ← \{0\} ¦ 0 ¦ \{\emptyset\} ¦ O ¦ o
(1,2) ← (2,1) ¦ 2,1 ¦ \{1,2\} ¦ [1,2] ¦ 1<x<2 ¦ \{2,1\} ¦ (1,2] ¦ (1,3) ¦ 12 ¦ 1.2 ¦ (1,2,3) ¦ x\in(1,2) ¦ 1 ¦ 1;2;3
(3,4) ← 3<y<4 ¦ (4,3) ¦ \{3,4\} ‖ (1,2),(3,4) ← 1,2,3,4 ¦ (1,2) ¦ (2,1),(3,4) ¦ (1,3),(2,4) ¦ (1,2),(3,5)
[1,2] ← (1,2) ¦ (1,2] ¦ 1<x<2 ¦ \{1,2\} ¦ [2,1] ¦ [1,3] ¦ [1,2) ¦ 1,2 ‖ (1,2] ← [1,2) ¦ (1,2) ¦ [1,2] ¦ 1\leq x<2
(1,\infty) ← x\geq1 ¦ x<1 ¦ [1,\infty) ¦ (-\infty,1) ¦ 1
(1,2)\cup(3,4) ← (1,4) ¦ (1,2) ¦ (1,2)\cap(3,4) ¦ (1,2)\cup(3,5) ¦ [1,2]\cup(3,4) ¦ (1,2),(3,4)
(-\infty,1)\cup(2,\infty) ← x<1 and x>2 ¦ 1<x<2 ¦ x<1 or x>3 ¦ x\leq1 or x>2
\begin{pmatrix}1\\2\end{pmatrix} ← \begin{pmatrix}1&2\end{pmatrix} ¦ \begin{pmatrix}2\\1\end{pmatrix}
\begin{pmatrix}1\\2\end{pmatrix} ← \begin{pmatrix}1\\2\\3\end{pmatrix}
\begin{pmatrix}1&2\\3&4\end{pmatrix} ← \begin{pmatrix}1&3\\2&4\end{pmatrix} ¦ -2 ¦ \begin{pmatrix}1&2\\3&5\end{pmatrix}
|x| ← x ¦ -x ¦ |y| ¦ x^2 ‖ \ln x^2 ← 2\ln x ‖ \sqrt{x^2} ← x
x^2+2x+1 ← (x+1)^2+0.0000000001 ¦ x^2+2x ¦ (x-1)^2 ¦ (x+1)^3 ‖ \mathbb{R} ← \mathbb{Q} ¦ \mathbb{Z} ¦ r ¦ Q
i ← -i ¦ I ¦ 1 ¦ j ‖ 90^\circ ← 90 radians ¦ 90 rad ¦ \pi ¦ 1.57 ¦ \frac{\pi}{3}
\frac{\pi}{2} ← 90 ¦ 180^\circ ¦ \frac{\pi}{2}^\circ ‖ 60^\circ ← \angle ABC=61^\circ ¦ 60' ¦ \frac{\pi}{6} ¦ 60 rad
\log 100 ← 100 ¦ \ln 100 ¦ \log 10 ‖ (2,1) ← (1,2) ¦ 1<x<2 ‖ \pm 5 ← 5 ‖ 3.14159 ← 3.14 ‖ 1/3 ← 0.333333 ¦ 0.33
\sqrt{2} ← 1.414 ¦ 1.41421356 ‖ \frac{1}{7} ← 0.142857 ‖ 100000 ← 100001 ‖ 123456 ← 123457 ‖ 1000000 ← 1000000.4
0.001 ← 0.0014 ‖ 0.00001 ← 0.00002 ‖ 1e-7 ← 2e-7 ‖ 1e-10 ← 0 ‖ 1.0000001 ← 1 ‖ x=5,y=6 ← 6,5 ‖ x \neq 5 ← x=5 ¦ 5
A ← A, B ‖ ABC ← CBA ‖ \text{yes} ← \text{no} ‖ 13_{8} ← 13 ‖ 30 ← 3 0 ‖ 2 3/4 ← 23/4 ‖ 2\frac{3}{4} ← \frac{6}{4}
25 ← 52 ¦ 2.5 10 ‖ x^2 ← x2 ¦ 2x ‖ 5 m^2 ← 5 m ‖ 5 km/h ← 5 m/s ‖ 5 apples ← 5 oranges ‖ \overline{0.3} ← 0.3
1,5 ← 1.5 ¦ 15 ‖ \text{even} ← \text{odd} ‖ true ← false ‖ 2i ← 2 ‖ 1+2i ← 1-2i ‖ 10:30 am ← 10:30 pm ‖ 10:30 ← 10:31
a_{10} ← a_{11} ‖ 10_2 ← 10_3 ‖ \log_2 8 ← \log_3 8 ‖ 2^{31}-1 ← 2^{31} ‖ 10^{20}+1 ← 10^{20} ‖ 10^{50} ← 10^{50}+1
1000 ← 1,000 hundredths
7 ← 7 \text{ is not the answer} ¦ 7 wrong ¦ 7 million ¦ 7 \text{ millions of millions} ¦ 7 sevenths ¦ 7 permille
7 ← 7 basis points ¦ 7 pi ¦ 7 times ten ¦ 7 tens ¦ 7 score ¦ 7 gross ¦ 7 and a half ¦ 7 point five ¦ 7 divided by two
7 ← 7 choose two ¦ 7 to the power of two ¦ 7 remainder one ¦ 7 or eight ¦ 7 if odd ‖ x\in[1,2] ← (1,2)
\sin x ← \sin y ¦ \cos x ‖ 2x+1 ← 2y+1 ‖ 3.14 ← \pi ‖ 2.718281828 ← e ‖ 1.41 ← \sqrt2 ‖ 1.414214 ← \sqrt2
0.3333333 ← \frac13 ‖ 0.6667 ← \frac23 ‖ 123456789 ← 123456789.4 ‖ 99.9999999 ← 100 ‖ 1000001 ← 1000000
1000000.4 ← 1000000 ‖ \frac{1}{3} ← 0.33333
""")

_READINGS = r"""
pairs intervals equal: (1,2) ← 1<x<2 ¦ x\in(1,2) ¦ (1,2) ¦ 2>x>1 ¦ (1.0, 2) ¦ x ∈ (1, 2) ¦ \frac22 < x < 2
pairs intervals equal: (3,4) ← 3<y<4
pairs intervals different: (1,2) ← 1\leq x\leq2 ¦ (2,1) ¦ [1,2] ¦ 2<x<1 ¦ x>1 ¦ \{1,2\}
base asked equal: 1010_2 ← 1010 ¦ 1010_2 ¦ (1010)_2 ‖ 1010 ← 1010_2 ¦ 1010_{2} ‖ 13_{8} ← 13
base asked different: 1010_2 ← 1010_3 ¦ 10 ¦ 1011 ‖ 10 ← 1010_2
angles written equal: 90^\circ ← 90^\circ ¦ 90 ¦ 90 degrees ‖ \frac{\pi}{2} ← \frac{\pi}{2} ¦ \pi/2 radians
angles written different: 90^\circ ← \frac{\pi}{2} ¦ \frac{\pi}{2}\text{ rad} ‖ \frac{\pi}{2} ← 90^\circ ¦ 90
percent hundredths equal: 0.5 ← 50\% ¦ 50 percent ‖ 50\% ← 0.5 ¦ 50\% ‖ 50 ← 5000\%
percent hundredths different: 50 ← 50\% ¦ 50 percent ‖ 50\% ← 50 ‖ 0.5 ← 0.5\%
percent unit equal: 50 ← 50\% ¦ 50 ‖ 50\% ← 50 ¦ 50\% ‖ 0.5 ← 0.5\% ¦ 0.5 percent ‖ 12.5 ← 12.5\%
percent unit different: 50\% ← 0.5 ¦ \frac12 ‖ 0.5 ← 50\%
decimals 6 equal: \frac13 ← 0.333333 ¦ 0.33333333 ¦ 0.3333333333333333 ‖ \sqrt2 ← 1.414214 ¦ 1.41421356
decimals 6 equal: \pi ← 3.141593 ¦ 3.141592653589793 ‖ 0.333333 ← \frac13 ‖ \frac23 ← 0.666667
decimals 6 different: \frac13 ← 0.33333 ¦ 0.333334 ¦ 0.33 ‖ \sqrt2 ← 1.414 ¦ 1.41421357
decimals 6 different: \pi ← 3.14159 ¦ 3.141592 ‖ \frac23 ← 0.666666 ‖ 1.0000000001 ← 1.0000000002
decimals 6 different: 5 ← 5.0000001
log e equal: \log 2 ← \ln 2 ¦ \log 2 ‖ \ln 2 ← \log 2 ‖ 1 ← \log e
log e different: 2 ← \log 100 ‖ \log 100 ← 2
"""


def _readings() -> list[tuple[dict[str, str | int], bool, list[Pair]]]:
    rows = []
    for line in _READINGS.strip().split("\n"):
        keyword, value, verdict, table = line.split(maxsplit=3)
        rows.append(({keyword: int(value) if value.isdigit() else value}, verdict == "equal:", pairs(table)))
    return rows


READINGS = _readings()
"""A keyword, whether the pairs are equal in that reading, and the pairs."""
