r"""Two hundred answers that are meant to hang, crash or blind a verifier."""

_NESTS = {
    "fractions": ("\\frac{1}{", "}"),
    "roots": ("\\sqrt{", "}"),
    "parentheses": ("(", ")"),
    "braces": ("{", "}"),
    "powers": ("2^{", "}"),
    "absolute values": ("|", "|"),
    "logarithms": ("\\log(", ")"),
    "sines": ("\\sin(", ")"),
    "lefts": ("\\left(", "\\right)"),
    "boxes": ("\\boxed{", "}"),
}


def _nested(opening: str, closing: str, depth: int) -> str:
    return opening * depth + "2" + closing * depth


HOSTILE: list[str] = [
    *(_nested(*ends, depth) for ends in _NESTS.values() for depth in (20, 60, 150, 250, 400)),
    *(
        f"{base}^{{{exponent}}}"
        for base in ("9", "99", "(x+1)", "\\pi", "(1+x+y+z)")
        for exponent in ("9^9", "9^{9^9}", "10^{10}", "999999")
    ),
    *(f"{n}{marks}" for n in ("9", "20", "100", "10000", "99999999") for marks in ("!", "!!", "!!!", "!!!!!!")),
    *(
        f"\\sum_{{i=1}}^{{{top}}} {term}"
        for top in ("10^6", "10^9", "10^{100}", "n")
        for term in ("i", "i!", "\\frac{1}{i}", "i^i")
    ),
    *(f"\\prod_{{i=1}}^{{{top}}} {term}" for top in ("10^5", "10^9", "n") for term in ("i", "(x+i)", "i^i")),
    *(f"\\int_0^{top} {term} dx" for top in ("1", "\\infty") for term in ("x^x", "e^{-x^2}\\sin(x^3)", "\\frac{1}{x^7+x+1}")),
    *(f"\\binom{{{n}}}{{{k}}}" for n in ("10^6", "10^9", "n") for k in ("5", "10^5", "n/2")),
    *("7" * length for length in (100, 1000, 3900, 5000, 100_000)),
    *(f"0.{'3' * length}" for length in (100, 3000)),
    *("+".join(f"x_{n}" for n in range(count)) for count in (50, 200, 600)),
    *("*".join(f"(x+{n})" for n in range(count)) for count in (10, 40, 120, 400)),
    *("-" * count + "1" for count in (10, 500, 3500)),
    *("\\{" + ",".join(map(str, range(count))) + "\\}" for count in (50, 300, 900)),
    *("\\begin{pmatrix}" + "\\\\".join("&".join(["1"] * n) for _ in range(n)) + "\\end{pmatrix}" for n in (5, 15, 40)),
    *(f"x^{n}+x+1=0" for n in (5, 50, 5000)),
    *("1e" + "9" * n for n in (1, 3, 6, 12)),
    *(
        "__import__('os').system('touch /tmp/palestra-owned')",
        "().__class__.__bases__[0].__subclasses__()",
        "exit()",
        "lambda: 0",
    ),
    *("open('/etc/passwd').read()", "eval('9**9**9')", "exec('while 1: pass')", "[x for x in range(10**10)]", "'a'*10**10"),
    *("\\input{/etc/passwd}", "\\write18{id}", "\\def\\x{\\x\\x}\\x", "\\loop\\repeat", "\x00" * 50, "\ud800", "\u202e5"),
    *(mark * 3000 for mark in "%()^_{\\$=,"),
    *("\\frac" * 700, "a" * 49 + "!", "1 " * 1500, "x" * 3500, "\\text{" * 500, "½" * 1000, "∞^∞^∞", "0^{0^{0}}"),
    *("\\frac{1}{0}", "\\frac{0}{0}", "\\sqrt{-1}^{\\sqrt{-1}^{99999}}", "\\lim_{x\\to 0} x^{x^{x^x}}", "\\tan(10^{99999})"),
    "\\Gamma(10^{10})",
    *("x^{y^{z^{w^{v}}}}+1", "|x|<|y|<|z|", "x>1>2>3", "\\mathbb{R}\\setminus\\{1,2\\}", "[1,2)\\cup(2,\\infty)\\cap\\{5\\}"),
]
