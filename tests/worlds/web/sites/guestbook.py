"""A small application to box: a guest book in Flask, and the same counter in plain WSGI and ASGI."""

import secrets
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import datetime
from os import urandom
from typing import Any, ClassVar

from palestra.worlds.web.sites.contract import Site
from palestra.worlds.web.sites.errands import Errand, Walk
from palestra.worlds.web.sites.state import Change

HOST = "guests.test"
_PAGE = """<!doctype html><title>Guests</title><h1>Guests</h1><ul>{rows}</ul><p>{now} {token}</p>
<form method=post><label>Name <input name=name></label><label>Town <select name=town><option>Oslo<option>Rome</select></label>
<button>Sign</button></form>"""


def flask_app() -> Any:
    from flask import Flask, redirect, request

    app = Flask(__name__)

    @app.route("/", methods=["GET", "POST"])
    def guests() -> Any:
        with closing(sqlite3.connect("guests.sqlite")) as db, db:
            if request.method == "POST":
                if not request.form["name"]:
                    return (
                        "<h1>A name is missing</h1><form method=post><label>Name <input name=name></label><button>Sign</button>"
                    )
                db.execute("INSERT INTO guest VALUES (?, ?)", (request.form["name"], request.form.get("town", "Oslo")))
                return redirect("/")
            rows = "".join(f"<li>{name} of {town}" for name, town in db.execute("SELECT * FROM guest"))
        return _PAGE.format(rows=rows, now=datetime.now().isoformat(), token=secrets.token_hex(4) + urandom(4).hex())

    return app


class Lazy:
    """Makes the Flask application when it is first called, so that this module can be read without Flask."""

    def __init__(self) -> None:
        self.made: Any = None

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        self.made = self.made or flask_app()
        return self.made(environ, start)  # type: ignore[no-any-return]


application = Lazy()
calls = 0


def plain(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    """Count the requests of this process in memory."""
    global calls
    if environ["PATH_INFO"] == "/exit":
        import os

        os._exit(3)
    if environ["PATH_INFO"] == "/raise":
        raise ValueError("the application has a bug")
    calls += 1
    start("200 OK", [("Content-Type", "text/html")])
    return [f"<h1>call {calls}</h1>".encode()]


async def asgi(scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    message = await receive()
    await send({"type": "http.response.start", "status": 201, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": scope["path"].encode() + b" " + message["body"]})


def prepare() -> None:
    with closing(sqlite3.connect("guests.sqlite")) as db, db:
        db.execute("CREATE TABLE guest (name TEXT, town TEXT)")
        db.execute("INSERT INTO guest VALUES ('Nobody', 'Rome')")


def seed(seed: int, greeting: str = "Guest") -> None:
    with closing(sqlite3.connect("guests.sqlite")) as db, db:
        db.execute("INSERT INTO guest VALUES (?, 'Oslo')", (f"{greeting} {seed % 100}",))


def broken_seed(seed: int) -> None:
    raise ValueError("no rows today")


_ME = __name__
GUESTS = Site(HOST, f"{_ME}:application", f"{_ME}:seed", f"{_ME}:prepare", database="guests.sqlite")
COUNTER = Site("count.test", f"{_ME}:plain")
ASYNC = Site("async.test", f"{_ME}:asgi", asgi=True)
BROKEN = Site("broken.test", f"{_ME}:plain", f"{_ME}:broken_seed")


class GuestBook:
    """One errand: to sign."""

    sites = (GUESTS, COUNTER)
    views: ClassVar = {HOST: {"guest": "SELECT name, town FROM guest"}}
    levels: ClassVar = {"easy": ("sign",)}

    def errand(self, seed: int, template: str) -> Errand:
        name = f"Ann {seed % 1000}"
        row = Change("guest", (name, "Rome"))
        return Errand(template, f"Sign as {name} of Rome.", f"http://{HOST}/", self.plan(name), wanted=(row,))

    @staticmethod
    def plan(name: str) -> Callable[[Walk], str]:
        def plan(walk: Walk) -> str:
            if any(f"{name} of Rome" in text for text in walk.texts()):
                return "stop []"
            return walk.fill({"Name": name, "Town": "Rome"}, "Sign")

        return plan


TOWN = GuestBook()
