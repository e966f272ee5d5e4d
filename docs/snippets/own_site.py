import sqlite3
from urllib.parse import parse_qs

from palestra.worlds.web.sites import Change, Errand, Site, Walk
from palestra.worlds.web.sites.env import Errands

PAGE = "<h1>Guests</h1><ul>{}</ul><form method=post><label>Name <input name=name></label><button>Sign</button></form>"


def application(environ, start_response):  # any WSGI application: Flask, Django, Bottle
    with sqlite3.connect("guests.sqlite") as database:  # a relative path: each episode has its own file
        if environ["REQUEST_METHOD"] == "POST":
            form = parse_qs(environ["wsgi.input"].read().decode())
            database.execute("INSERT INTO guest VALUES (?)", form["name"])
        rows = "".join(f"<li>{name}</li>" for (name,) in database.execute("SELECT name FROM guest"))
    database.close()
    start_response("200 OK", [("Content-Type", "text/html")])
    return [PAGE.format(rows).encode()]


def prepare():  # once
    sqlite3.connect("guests.sqlite").execute("CREATE TABLE guest (name TEXT)").connection.close()


def seed(seed):  # for every episode
    with sqlite3.connect("guests.sqlite") as database:
        database.execute("INSERT INTO guest VALUES (?)", [f"Guest {seed % 100}"])
    database.close()


class GuestBook:
    sites = (Site("guests.test", "own_site:application", "own_site:seed", "own_site:prepare", database="guests.sqlite"),)
    views = {"guests.test": {"guest": "SELECT name FROM guest"}}
    levels = {"easy": ("sign",)}

    def errand(self, seed, template):
        name = f"Ann {seed % 1000}"

        def plan(walk: Walk) -> str:  # the oracle
            return "stop []" if walk.find(name, "listitem") else walk.fill({"Name": name}, "Sign")

        wanted = (Change("guest", (name,)),)
        return Errand(template, f"Sign as {name}.", "http://guests.test/", plan, wanted=wanted)


town = GuestBook()


class GuestBookEnv(Errands):
    def __init__(self):
        super().__init__("own_site:town", max_turns=10)
