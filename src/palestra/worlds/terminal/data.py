"""Families about data: logs of a server, and tables to repair."""

import json
import sqlite3
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from palestra.sandbox.layers import NewFile
from palestra.worlds.terminal.grading import Lines, Prints, Value
from palestra.worlds.terminal.scene import HOME, Scene, draw, sample, script, text_file
from palestra.worlds.terminal.texts import WORDS

__all__ = ["logs", "tables"]


def logs(rng: np.random.Generator, level: int) -> Scene:
    """Questions about an access log."""
    paths = [f"/{word}" for word in sample(rng, WORDS, 10)]
    clients = [f"10.{a}.{b}.{c}" for a, b, c in rng.integers(1, 250, size=(12, 3)).tolist()]
    rows: list[tuple[str, int, str, str, int, int]] = []
    second = 0
    for _ in range(int(rng.integers(200, 500))):
        second += int(rng.integers(1, 200))
        status = int(draw(rng, (200, 200, 200, 200, 301, 404, 404, 500, 503)))
        rows.append(
            (draw(rng, clients), second, draw(rng, ("GET", "GET", "POST")), draw(rng, paths), status, second % 5000 + 17)
        )
    log = "".join(
        f"{who} - - [12/Mar/2024:{at // 3600 % 24:02}:{at // 60 % 60:02}:{at % 60:02} +0000] "
        f'"{verb} {path} HTTP/1.1" {code} {size}\n'
        for who, at, verb, path, code, size in rows
    )
    goal, expected, solve = (_log_count, _log_ranking, _log_hours)[level](rng, rows)
    files = [text_file("access.log", log)]
    return Scene(goal, files, [Lines("answer.txt", expected)], [f"{solve} > answer.txt"])


def _log_count(rng: np.random.Generator, rows: list[Any]) -> tuple[str, list[str], str]:
    status = draw(rng, sorted({row[4] for row in rows}))
    goal = f"How many requests in access.log were answered with status {status}? Write the number to answer.txt."
    return goal, [str(sum(row[4] == status for row in rows))], f"awk '$9=={status}' access.log | wc -l"


class _Answered(NamedTuple):
    """Which requests of a log a question is about: those with one status, or with all from one on."""

    about: str
    low: int
    high: int

    @property
    def awk(self) -> str:
        return f"$9=={self.low}" if self.low == self.high else f"$9>={self.low}"


_ANSWERED = (
    _Answered("a status of 500 or above", 500, 599),
    _Answered("a status of 400 or above", 400, 599),
    *(_Answered(f"the status {status}", status, status) for status in (200, 301, 404, 500, 503)),
)
_RANKED = (("client", "ADDRESS", "addresses", 0, "$1"), ("path", "PATH", "paths", 3, "$7"))
"""What a question ranks: its name, what is written, the plural of this, its place in a row, and its field in awk."""


def _log_ranking(rng: np.random.Generator, rows: list[Any]) -> tuple[str, list[str], str]:
    answered, (what, name, many, column, field) = draw(rng, _ANSWERED), draw(rng, _RANKED)
    most, fewest = int(rng.integers(2, 8)), bool(rng.integers(2))
    counts = Counter(row[column] for row in rows if answered.low <= row[4] <= answered.high)
    ranked = sorted(counts.items(), key=lambda pair: (pair[1] if fewest else -pair[1], pair[0]))[:most]
    way = "fewest" if fewest else "most"
    goal = (
        f"Which {most} {what}s in access.log have the {way} requests that were answered with {answered.about}? A {what} "
        f"without such a request does not count. Write them to answer.txt, one per line as 'COUNT {name}', the {way} first; "
        f"equal counts in the order of the {many} as text."
    )
    solve = (
        f"awk '{answered.awk}{{n[{field}]++}}END{{for(k in n)print n[k],k}}' access.log "
        f"| sort -k1,1n{'' if fewest else 'r'} -k2,2 | head -{most}"
    )
    return goal, [f"{count} {which}" for which, count in ranked], solve


def _log_hours(rng: np.random.Generator, rows: list[Any]) -> tuple[str, list[str], str]:
    bound, verb, status = draw(rng, (400, 500)), draw(rng, ("GET", "POST")), draw(rng, (200, 301, 404, 500, 503))
    count: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for _, at, how, _, code, size in rows:
        hour = f"{at // 3600 % 24:02}"
        count[hour] += 1
        failed[hour] += code >= bound
        sizes[hour] += size if how == verb and code == status else 0
    least = draw(rng, sorted(number for number in failed.values() if number))  # the count of an hour, so it tells hours apart
    goal = (
        f"For every hour of access.log with at least {least} failed requests (status {bound} or above), write a line to "
        f"answer.txt: the hour (two digits), all requests, failed requests, and the bytes of {verb} requests with status "
        f"{status}, separated by commas, in the order of the hours."
    )
    expected = [f"{hour},{count[hour]},{failed[hour]},{sizes[hour]}" for hour in sorted(count) if failed[hour] >= least]
    solve = (
        f'awk \'{{split($4,t,":");h=t[2];n[h]++;if($9>={bound})f[h]++;if($6=="\\"{verb}"&&$9=={status})b[h]+=$10}}'
        f'END{{for(h in n)if(f[h]>={least})print h","n[h]","f[h]+0","b[h]+0}}\' access.log | sort'
    )
    return goal, expected, solve


# ----------------------------------------------------------------------------------------------------------------- tables


def tables(rng: np.random.Generator, level: int) -> Scene:
    """Repair a CSV file, a JSON Lines file, or a SQLite database."""
    return (_csv, _json_lines, _sqlite)[level](rng)


class _Item(NamedTuple):
    id: int
    name: str
    price: int
    stock: int

    def number(self, column: str) -> int:
        """Return a column by its name."""
        return {"id": self.id, "price": self.price, "stock": self.stock}[column]


class _Wanted(NamedTuple):
    """Which rows to keep, and how to sort them. A goal states both; no two rows have the same number in a column."""

    column: str
    at_least: bool
    bound: int
    key: str
    descending: bool

    @property
    def condition(self) -> str:
        """Which rows to keep, in English."""
        return f"whose {self.column} is at {'least' if self.at_least else 'most'} {self.bound}"

    @property
    def order(self) -> str:
        """How to sort, in English."""
        return f"by {self.key}, the {'largest' if self.descending else 'smallest'} first"

    @property
    def test(self) -> str:
        """The comparison with the bound, in awk and in Python."""
        return f"{'>=' if self.at_least else '<='}{self.bound}"

    def answer(self, rows: list[_Item]) -> list[_Item]:
        """Return the rows that are asked for."""
        sign = 1 if self.at_least else -1
        kept = [row for row in rows if sign * (row.number(self.column) - self.bound) >= 0]
        return sorted(kept, key=lambda row: row.number(self.key), reverse=self.descending)


def _wanted(rng: np.random.Generator) -> _Wanted:
    column, key = draw(rng, ("price", "stock")), draw(rng, ("id", "price", "stock"))
    return _Wanted(column, bool(rng.integers(2)), int(rng.integers(200, 800)), key, bool(rng.integers(2)))


def _items(rng: np.random.Generator, count: int) -> list[_Item]:
    ids, prices, stocks = ((rng.permutation(900)[:count] + 100).tolist() for _ in range(3))
    return [_Item(ident, draw(rng, WORDS), *rest) for ident, *rest in zip(ids, prices, stocks, strict=True)]


def _csv(rng: np.random.Generator) -> Scene:
    wanted, rows = _wanted(rng), _items(rng, int(rng.integers(25, 60)))
    lines = [_csv_line(row) for row in rows]
    broken = [draw(rng, (f"{a},{b},{c}", f"{a},{b},n/a,{d}", f"{a},{b},{c},n/a")) for a, b, c, d in _items(rng, 8)]
    mixed = sample(rng, [*lines, *broken, *sample(rng, lines, 6)], len(lines) + 14)
    header = ",".join(_Item._fields)
    goal = (
        "items.csv has the columns id, name, price and stock. Write a repaired copy to clean.csv: keep the header; drop rows "
        "that do not have four fields or whose price or stock is not a whole number; keep a row that occurs twice only once; "
        f"of the rows that are left, keep those {wanted.condition}; sort them {wanted.order}."
    )
    column, key = (_Item._fields.index(name) + 1 for name in (wanted.column, wanted.key))
    solve = (
        "(head -1 items.csv; tail -n +2 items.csv | awk -F, 'NF==4 && $3 ~ /^[0-9]+$/ && $4 ~ /^[0-9]+$/ "
        f"&& ${column}{wanted.test} && !s[$0]++' | sort -t, -k{key},{key}n{'r' if wanted.descending else ''}) > clean.csv"
    )
    expected = [header, *map(_csv_line, wanted.answer(rows))]
    return Scene(goal, [text_file("items.csv", "\n".join([header, *mixed]) + "\n")], [Lines("clean.csv", expected)], [solve])


def _csv_line(row: _Item) -> str:
    return ",".join(map(str, row))


def _json_lines(rng: np.random.Generator) -> Scene:
    wanted, rows = _wanted(rng), _items(rng, int(rng.integers(25, 60)))
    written = []
    for row in rows:
        line = json.dumps(row._asdict())
        fault = int(rng.integers(4))
        written.append(line + "," if fault == 0 else line.replace('"', "'") if fault == 1 else line)
    goal = (
        "items.jsonl has one object per line, but some lines end with a comma and some have single quotes instead of double "
        f"ones. Write items.json: one JSON array of the objects {wanted.condition}, sorted {wanted.order}, with numbers as "
        "numbers."
    )
    program = (
        "import json; rows=[json.loads(l.strip().rstrip(',').replace(chr(39),chr(34))) for l in open('items.jsonl')]; "
        f"rows=[r for r in rows if r['{wanted.column}']{wanted.test}]; "
        f"rows.sort(key=lambda r:r['{wanted.key}'],reverse={wanted.descending}); json.dump(rows,open('items.json','w'))"
    )
    expected = [row._asdict() for row in wanted.answer(rows)]
    files = [text_file("items.jsonl", "\n".join(written) + "\n")]
    return Scene(goal, files, [Value("items.json", expected)], [f'python3 -c "{program}"'])


def _shop(rng: np.random.Generator, customers: list[tuple[int, str]], orders: list[tuple[int, int, int]]) -> bytes:
    """Return a database with these rows, in which some customers occur twice."""
    base = sqlite3.connect(":memory:")
    base.execute("create table customers (id integer, name text)")
    base.execute("create table orders (id integer, customer integer, amount integer)")
    base.executemany("insert into customers values (?, ?)", [*customers, *sample(rng, customers, 4)])
    base.executemany("insert into orders values (?, ?, ?)", orders)
    base.commit()
    content = base.serialize()
    base.close()
    return content


_DUMP = script(
    "python3 -I - <<'END'",
    "import json, sqlite3",
    "c = sqlite3.connect('file:shop.db?mode=ro', uri=True)",
    "print(json.dumps([c.execute('select id, name from customers order by 1, 2').fetchall(),",
    "                  c.execute('select id, customer, amount from orders order by 1').fetchall()]))",
    "END",
)


def _sqlite(rng: np.random.Generator) -> Scene:
    customers = [(number, draw(rng, WORDS)) for number in range(1, int(rng.integers(10, 25)))]
    orders = [
        (number, int(rng.integers(1, 40)), int(rng.integers(-50, 500))) for number in range(1, int(rng.integers(60, 150)))
    ]
    low, high = int(rng.integers(0, 60)), int(rng.integers(200, 460))
    numbers = {number for number, _ in customers}
    kept = [[ident, who, max(amount, low)] for ident, who, amount in orders if who in numbers and amount <= high]
    goal = (
        "shop.db is a SQLite database with the tables customers (id, name) and orders (id, customer, amount). Repair it in "
        "place: delete customers that occur twice so that each is left once; delete orders of customers that do not exist and "
        f"orders with an amount above {high}; set amounts below {low} to {low}. (Python's sqlite3 module is available.)"
    )
    program = script(
        "python3 - <<'END'",
        "import sqlite3",
        "c = sqlite3.connect('shop.db')",
        "c.execute('delete from customers where rowid not in (select min(rowid) from customers group by id, name)')",
        f"c.execute('delete from orders where customer not in (select id from customers) or amount > {high}')",  # noqa: S608 - numbers of our own, in the text of a program
        f"c.execute('update orders set amount = {low} where amount < {low}')",  # noqa: S608 - numbers of our own, in the text of a program
        "c.commit()",
        "END",
    )
    check = Prints(_DUMP, [[list(row) for row in customers], kept], "value", ["shop.db"])
    return Scene(goal, [NewFile(f"{HOME}/shop.db", _shop(rng, customers, orders))], [check], [program])
