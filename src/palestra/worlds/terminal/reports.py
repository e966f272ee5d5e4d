"""The family about reports: sums, groups and joins of the sales of many days, over many files."""

import json
from collections import Counter
from typing import NamedTuple

import numpy as np

from palestra.sandbox.layers import NewFile
from palestra.worlds.terminal.asks import TOTAL, Ask, draw_ask
from palestra.worlds.terminal.grading import Lines
from palestra.worlds.terminal.scene import Scene, draw, sample, script, text_file
from palestra.worlds.terminal.texts import WORDS

__all__ = ["pipeline"]

_WHERE = "The folder sales has one folder per shop with one file per day; each has a header and lines 'product;amount'. "
_COLUMNS = {"product": "$1", "shop": "p[2]", "day": "substr(p[3],1,10)"}
"""The columns of all sales together, and how awk reads them."""


class _Sale(NamedTuple):
    shop: str
    day: str
    product: str
    amount: int

    def column(self, name: str) -> str:
        """Return a column by its name."""
        return {"shop": self.shop, "day": self.day, "product": self.product}[name]


class _Sales(NamedTuple):
    rows: list[_Sale]
    files: list[NewFile]
    goods: list[str]


def pipeline(rng: np.random.Generator, level: int) -> Scene:
    """Sum, group or join the sales of many days."""
    return (_totals, _best, _priced)[level](rng, _sales(rng))


def _sales(rng: np.random.Generator) -> _Sales:
    goods = sample(rng, WORDS, int(rng.integers(5, 9)))
    rows: list[_Sale] = []
    files: list[NewFile] = []
    for shop in sample(rng, WORDS, int(rng.integers(3, 6))):
        for day in range(1, int(rng.integers(4, 9))):
            date, count = f"2024-05-{day:02}", int(rng.integers(5, 20))
            shop_sales = [_Sale(shop, date, draw(rng, goods), int(rng.integers(1, 40))) for _ in range(count)]
            rows += shop_sales
            lines = "".join(f"{sale.product};{sale.amount}\n" for sale in shop_sales)
            files.append(text_file(f"sales/{shop}/{date}.csv", f"product;amount\n{lines}"))
    return _Sales(rows, files, goods)


def _summed(key: str, ask: Ask) -> str:
    """Return a command that prints 'group;number' for every group; ``key`` is the group in awk."""
    return (
        f"awk -F';' 'FNR>1&&$2>={ask.least}{{split(FILENAME,p,\"/\");k={key};v=$2+0;{ask.statistic.awk}}}"
        'END{for(k in t)print k";"t[k]}\' sales/*/*.csv'
    )


def _totals(rng: np.random.Generator, sales: _Sales) -> Scene:
    ask = draw_ask(rng, range(2, 30))
    column = draw(rng, sorted(_COLUMNS))
    goal = _WHERE + (
        f"Only lines with an amount of at least {ask.least} count. Write report.csv: for each {column} that has such lines, a "
        f"line '{column};value' with {ask.statistic.about} of these lines, the {ask.first} value first; equal values in the "
        f"order of the {column}s."
    )
    expected = [f"{group};{value}" for group, value in ask.answer((sale.column(column), sale.amount) for sale in sales.rows)]
    solve = f"{_summed(_COLUMNS[column], ask)} | sort -t';' -k2,2{ask.sort_flag} -k1,1 > report.csv"
    return Scene(goal, sales.files, [Lines("report.csv", expected)], [solve])


def _best(rng: np.random.Generator, sales: _Sales) -> Scene:
    ask = draw_ask(rng, range(2, 25))._replace(statistic=TOTAL)
    column = draw(rng, ("shop", "day"))
    goal = _WHERE + (
        f"Only lines with an amount of at least {ask.least} count. Write report.csv: for each {column} that has such lines, a "
        f"line '{column};product;total' with the product that has the {ask.first} total amount there (of equal totals, the "
        f"first in alphabetical order; a product without such lines does not count), sorted by {column}."
    )
    best: dict[str, str] = {}
    for group, total in ask.answer((f"{sale.column(column)};{sale.product}", sale.amount) for sale in sales.rows):
        best.setdefault(group.split(";")[0], f"{group};{total}")
    both = f'{_COLUMNS[column]}";"$1'
    solve = f"{_summed(both, ask)} | sort -t';' -k1,1 -k3,3{ask.sort_flag} -k2,2 | awk -F';' '!s[$1]++' > report.csv"
    return Scene(goal, sales.files, [Lines("report.csv", [best[group] for group in sorted(best)])], [solve])


def _priced(rng: np.random.Generator, sales: _Sales) -> Scene:
    prices = {good: int(rng.integers(1, 90)) for good in sales.goods}
    missing = draw(rng, sorted({sale.product for sale in sales.rows}))
    listed = [{"product": good, "price": price} for good, price in prices.items() if good != missing]
    prices[missing], least, last_first = int(rng.integers(1, 90)), int(rng.integers(2, 20)), bool(rng.integers(2))
    days: Counter[str] = Counter({sale.day: 0 for sale in sales.rows})
    for sale in sales.rows:
        days[sale.day] += sale.amount * prices[sale.product] if sale.amount >= least else 0
    total, expected = 0, []
    for day in sorted(days, reverse=last_first):
        total += days[day]
        expected.append(f"{day};{days[day]};{total}")
    goal = _WHERE + (
        f"prices.json lists the price of each product; a product that it does not list costs {prices[missing]}. Lines with an "
        f"amount below {least} count as 0. Write report.csv: for each day a line 'day;revenue;sum' over all shops, the "
        f"{'last' if last_first else 'first'} day first, where sum is the revenue of this line and of all lines above it."
    )
    made = [*sales.files, text_file("prices.json", json.dumps(listed))]
    program = _priced_program(prices[missing], least, last_first)
    return Scene(goal, made, [Lines("report.csv", expected)], [program])


def _priced_program(price: int, least: int, last_first: bool) -> str:
    return script(
        "python3 - <<'END'",
        "import collections, csv, glob, json, os",
        "price = {row['product']: row['price'] for row in json.load(open('prices.json'))}",
        "days = collections.Counter()",
        "for path in glob.glob('sales/*/*.csv'):",
        "    for row in csv.DictReader(open(path), delimiter=';'):",
        "        amount = int(row['amount'])",
        f"        worth = amount * price.get(row['product'], {price}) if amount >= {least} else 0",
        "        days[os.path.basename(path)[:-4]] += worth",
        "total = 0",
        "with open('report.csv', 'w') as out:",
        f"    for day in sorted(days, reverse={last_first}):",
        "        total += days[day]",
        "        print(day, days[day], total, sep=';', file=out)",
        "END",
    )
