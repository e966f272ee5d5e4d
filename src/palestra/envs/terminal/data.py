"""Families about data: logs of a server, tables to repair, and reports from many files."""

import json
import sqlite3
from collections import Counter, defaultdict
from typing import Any

import numpy as np

from palestra.envs.terminal.grading import Lines, Prints, Value
from palestra.envs.terminal.scene import HOME, Scene, draw, sample, script, text_file
from palestra.envs.terminal.texts import WORDS
from palestra.sandbox.layers import NewFile

__all__ = ["logs", "pipeline", "tables"]


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
    goal, expected, solve = (_log_count, _log_clients, _log_hours)[level](rng, rows)
    files = [text_file("access.log", log)]
    return Scene(goal, files, [Lines("answer.txt", expected)], [f"{solve} > answer.txt"])


def _log_count(rng: np.random.Generator, rows: list[Any]) -> tuple[str, list[str], str]:
    status = draw(rng, sorted({row[4] for row in rows}))
    goal = f"How many requests in access.log were answered with status {status}? Write the number to answer.txt."
    return goal, [str(sum(row[4] == status for row in rows))], f"awk '$9=={status}' access.log | wc -l"


def _log_clients(rng: np.random.Generator, rows: list[Any]) -> tuple[str, list[str], str]:
    errors = Counter(row[0] for row in rows if row[4] >= 500)
    ranked = sorted(errors.items(), key=lambda pair: (-pair[1], pair[0]))[:3]
    goal = (
        "Which three clients in access.log received the most answers with a status of 500 or above? Write them to answer.txt, "
        "one per line as 'COUNT ADDRESS', the most first; equal counts in the order of the addresses as text."
    )
    solve = "awk '$9>=500{n[$1]++}END{for(k in n)print n[k],k}' access.log | sort -k1,1nr -k2,2 | head -3"
    return goal, [f"{count} {who}" for who, count in ranked], solve


def _log_hours(rng: np.random.Generator, rows: list[Any]) -> tuple[str, list[str], str]:
    least = int(rng.integers(2, 6))
    count: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for _, at, verb, _, code, size in rows:
        hour = f"{at // 3600 % 24:02}"
        count[hour] += 1
        failed[hour] += code >= 400
        sizes[hour] += size if verb == "GET" and code == 200 else 0
    goal = (
        f"For every hour of access.log with at least {least} failed requests (status 400 or above), write a line to "
        "answer.txt: the hour (two digits), all requests, failed requests, and the bytes of successful GET requests "
        "(status 200), separated by commas, in the order of the hours."
    )
    expected = [f"{hour},{count[hour]},{failed[hour]},{sizes[hour]}" for hour in sorted(count) if failed[hour] >= least]
    solve = (
        'awk \'{split($4,t,":");h=t[2];n[h]++;if($9>=400)f[h]++;if($6=="\\"GET"&&$9==200)b[h]+=$10}'
        f'END{{for(h in n)if(f[h]>={least})print h","n[h]","f[h]+0","b[h]+0}}\' access.log | sort'
    )
    return goal, expected or [""], solve


# ----------------------------------------------------------------------------------------------------------------- tables


def tables(rng: np.random.Generator, level: int) -> Scene:
    """Repair a CSV file, a JSON Lines file, or a SQLite database."""
    return (_csv, _json_lines, _sqlite)[level](rng)


def _items(rng: np.random.Generator, count: int) -> list[tuple[int, str, int]]:
    ids = (rng.permutation(900)[:count] + 100).tolist()
    return [(ident, draw(rng, WORDS), int(rng.integers(1, 1000))) for ident in ids]


def _csv(rng: np.random.Generator) -> Scene:
    rows = _items(rng, int(rng.integers(25, 60)))
    lines = [f"{ident},{name},{price}" for ident, name, price in rows]
    broken = [f"{ident},{name}" if rng.random() < 0.5 else f"{ident},{name},n/a" for ident, name, _ in _items(rng, 6)]
    copies = sample(rng, lines, 6)
    mixed = sample(rng, [*lines, *broken, *copies], len(lines) + 12)
    goal = (
        "items.csv has the columns id, name and price. Write a repaired copy to clean.csv: keep the header; drop rows that do "
        "not have three fields or whose price is not a whole number; keep a row that occurs twice only once; sort the rows "
        "by id."
    )
    expected = ["id,name,price", *sorted(lines, key=lambda line: int(line.split(",")[0]))]
    solve = (
        "(head -1 items.csv; tail -n +2 items.csv | awk -F, 'NF==3 && $3 ~ /^[0-9]+$/ && !s[$0]++' "
        "| sort -t, -k1,1n) > clean.csv"
    )
    files = [text_file("items.csv", "\n".join(["id,name,price", *mixed]) + "\n")]
    return Scene(goal, files, [Lines("clean.csv", expected)], [solve])


def _json_lines(rng: np.random.Generator) -> Scene:
    rows = [{"id": ident, "name": name, "price": price} for ident, name, price in _items(rng, int(rng.integers(25, 60)))]
    written = []
    for row in rows:
        line = json.dumps(row)
        fault = int(rng.integers(4))
        written.append(line + "," if fault == 0 else line.replace('"', "'") if fault == 1 else line)
    goal = (
        "items.jsonl has one object per line, but some lines end with a comma and some have single quotes instead of double "
        "ones. Write items.json: one JSON array of all objects, sorted by id, with price as a number."
    )
    expected = sorted(rows, key=lambda row: int(str(row["id"])))
    program = (
        "import json; rows=[json.loads(l.strip().rstrip(',').replace(chr(39),chr(34))) for l in open('items.jsonl')]; "
        "json.dump(sorted(rows,key=lambda r:r['id']),open('items.json','w'))"
    )
    files = [text_file("items.jsonl", "\n".join(written) + "\n")]
    return Scene(goal, files, [Value("items.json", expected)], [f'python3 -c "{program}"'])


def _sqlite(rng: np.random.Generator) -> Scene:
    customers = [(number, draw(rng, WORDS)) for number in range(1, int(rng.integers(10, 25)))]
    orders = [
        (number, int(rng.integers(1, 40)), int(rng.integers(-50, 500))) for number in range(1, int(rng.integers(60, 150)))
    ]
    base = sqlite3.connect(":memory:")
    base.execute("create table customers (id integer, name text)")
    base.execute("create table orders (id integer, customer integer, amount integer)")
    base.executemany("insert into customers values (?, ?)", [*customers, *sample(rng, customers, 4)])
    base.executemany("insert into orders values (?, ?, ?)", orders)
    base.commit()
    content = base.serialize()
    base.close()
    known = {number for number, _ in customers}
    kept = [[ident, who, max(amount, 0)] for ident, who, amount in orders if who in known]
    goal = (
        "shop.db is a SQLite database with the tables customers (id, name) and orders (id, customer, amount). Repair it in "
        "place: delete customers that occur twice so that each is left once; delete orders of customers that do not exist; set "
        "negative amounts to 0. (Python's sqlite3 module is available.)"
    )
    program = script(
        "python3 - <<'END'",
        "import sqlite3",
        "c = sqlite3.connect('shop.db')",
        "c.execute('delete from customers where rowid not in (select min(rowid) from customers group by id, name)')",
        "c.execute('delete from orders where customer not in (select id from customers)')",
        "c.execute('update orders set amount = 0 where amount < 0')",
        "c.commit()",
        "END",
    )
    dump = script(
        "python3 -I - <<'END'",
        "import json, sqlite3",
        "c = sqlite3.connect('file:shop.db?mode=ro', uri=True)",
        "print(json.dumps([c.execute('select id, name from customers order by 1, 2').fetchall(),",
        "                  c.execute('select id, customer, amount from orders order by 1').fetchall()]))",
        "END",
    )

    check = Prints(dump, [[list(one) for one in customers], kept], "value", ["shop.db"])
    return Scene(goal, [NewFile(f"{HOME}/shop.db", content)], [check], [program])


# --------------------------------------------------------------------------------------------------------------- pipeline


def pipeline(rng: np.random.Generator, level: int) -> Scene:
    """Sum, group or join the sales of many days."""
    shops = sample(rng, WORDS, int(rng.integers(3, 6)))
    goods = sample(rng, WORDS, int(rng.integers(5, 9)))
    files: list[NewFile] = []
    rows: list[tuple[str, str, str, int]] = []
    for shop in shops:
        for day in range(1, int(rng.integers(4, 9))):
            own = [
                (shop, f"2024-05-{day:02}", draw(rng, goods), int(rng.integers(1, 40))) for _ in range(int(rng.integers(5, 20)))
            ]
            rows += own
            lines = "".join(f"{good};{amount}\n" for _, _, good, amount in own)
            files.append(text_file(f"sales/{shop}/2024-05-{day:02}.csv", f"product;amount\n{lines}"))
    where = "The folder sales has one folder per shop with one file per day; each has a header and lines 'product;amount'. "
    if level == 0:
        total = Counter[str]()
        for _, _, good, amount in rows:
            total[good] += amount
        goal = where + "Write report.csv: for each product a line 'product;total' over all shops and days, sorted by product."
        expected = [f"{good};{total[good]}" for good in sorted(total)]
        solve = "awk -F';' 'FNR>1{t[$1]+=$2}END{for(k in t)print k\";\"t[k]}' sales/*/*.csv | sort > report.csv"
    elif level == 1:
        best: dict[str, Counter[str]] = defaultdict(Counter)
        for shop, _, good, amount in rows:
            best[shop][good] += amount
        goal = where + (
            "Write report.csv: for each shop a line 'shop;product;total' with the product that sold most over all days (of "
            "equal totals, the first in alphabetical order), sorted by shop."
        )
        tops = {shop: min(sold.items(), key=lambda pair: (-pair[1], pair[0])) for shop, sold in best.items()}
        expected = [f"{shop};{good};{amount}" for shop, (good, amount) in sorted(tops.items())]
        solve = (
            "for s in sales/*; do awk -F';' 'FNR>1{t[$1]+=$2}END{for(k in t)print k\";\"t[k]}' $s/*.csv "
            "| sort -t';' -k2,2nr -k1,1 | head -1 | sed \"s|^|${s#sales/};|\"; done | sort > report.csv"
        )
    else:
        return _priced(rng, where, files, rows, goods)
    return Scene(goal, files, [Lines("report.csv", expected)], [solve])


def _priced(
    rng: np.random.Generator, where: str, files: list[NewFile], rows: list[tuple[str, str, str, int]], goods: list[str]
) -> Scene:
    prices = {good: int(rng.integers(1, 90)) for good in goods}
    missing = draw(rng, goods)
    listed = [{"product": good, "price": price} for good, price in prices.items() if good != missing]
    days: Counter[str] = Counter()
    for _, day, good, amount in rows:
        days[day] += amount * prices[good] if good != missing else 0
    total = 0
    expected = []
    for day in sorted(days):
        total += days[day]
        expected.append(f"{day};{days[day]};{total}")
    goal = where + (
        "prices.json lists the price of each product; products without a price count as 0. Write report.csv: for each day a "
        "line 'day;revenue;sum of the revenue up to this day' over all shops, in the order of the days."
    )
    program = script(
        "python3 - <<'END'",
        "import collections, csv, glob, json, os",
        "price = {row['product']: row['price'] for row in json.load(open('prices.json'))}",
        "days = collections.Counter()",
        "for path in glob.glob('sales/*/*.csv'):",
        "    for row in csv.DictReader(open(path), delimiter=';'):",
        "        days[os.path.basename(path)[:-4]] += int(row['amount']) * price.get(row['product'], 0)",
        "total = 0",
        "with open('report.csv', 'w') as out:",
        "    for day in sorted(days):",
        "        total += days[day]",
        "        print(day, days[day], total, sep=';', file=out)",
        "END",
    )
    made = [*files, text_file("prices.json", json.dumps(listed))]
    return Scene(goal, made, [Lines("report.csv", expected)], [program])
