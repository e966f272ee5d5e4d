"""``palestra index``: build, try and serve document indexes for the search tool."""

import asyncio
from pathlib import Path
from typing import Any

import typer

from palestra.cli.options import HOST, port_option, token_file_option
from palestra.cli.results import JSON, READY_JSON, show
from palestra.cli.targets import check_folder
from palestra.errors import UsageError
from palestra.foundation.terminal import terminal_safe

__all__ = ["index_app"]

index_app = typer.Typer(no_args_is_help=True)
_FOLDER: Any = typer.Argument(..., help="A folder that `palestra index build` made.")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@index_app.command("build")
def build_command(
    corpus: Path = typer.Argument(
        ..., help="JSON Lines file. Each object has a field `text` (or `contents`), and optionally `id` and `title`."
    ),
    folder: Path | None = typer.Argument(None, help="Folder to create; by default beside the corpus."),
    as_json: bool = JSON,
) -> None:
    """Build a BM25 index of a corpus."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from palestra.tools.search.bm25 import build_index
    from palestra.tools.search.documents import read_corpus

    target = folder or corpus.with_suffix(".index")
    with open(corpus, "rb") as file:
        total = sum(1 for line in file if line.strip())
    if not total:
        raise UsageError(f"{corpus} is empty: a corpus has one JSON object per line")
    check_folder(target.parent, "the argument FOLDER")
    columns = (TextColumn("indexing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, disable=as_json) as bar:
        task = bar.add_task("", total=total)
        count = build_index(read_corpus(corpus), target, progress=lambda done: bar.update(task, completed=done))
    show(as_json, {"folder": str(target), "documents": count}, f"{count} documents in {target}")


@index_app.command("search")
def search_command(
    folder: Path = _FOLDER,
    query: str = typer.Argument(..., help="Words to look for."),
    k: int = typer.Option(3, "-k", min=1, help="Number of documents to print."),
    as_json: bool = JSON,
) -> None:
    """Search an index and print the best documents."""
    from palestra.tools.search import SearchTool
    from palestra.tools.search.bm25 import Bm25Index

    text = asyncio.run(SearchTool(Bm25Index(folder), k=k)(query=query)).text
    show(as_json, {"query": query, "text": text}, terminal_safe(text))


@index_app.command("serve")
def serve_command(
    folder: Path = _FOLDER,
    host: str = HOST,
    port: int = port_option(8000),
    token_file: Path | None = token_file_option(None),
    as_json: bool = READY_JSON,
) -> None:
    """Serve an index over HTTP, with Search-R1's /retrieve protocol, until Ctrl-C."""
    from palestra.serve.tokens import read_token_file
    from palestra.tools.search.bm25 import Bm25Index
    from palestra.tools.search.remote import retrieval_app

    if token_file is None and host not in _LOOPBACK:
        raise UsageError(f"other machines can connect to {host}, so clients need a token: name a token file with --token-file")
    index = Bm25Index(folder)
    tokens = read_token_file(token_file) if token_file is not None else []
    asyncio.run(_serve(retrieval_app(index, tokens=tokens), host, port, as_json))


async def _serve(app: Any, host: str, port: int, as_json: bool) -> None:
    from aiohttp import web

    runner = web.AppRunner(app)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}. Choose another with --port") from None
        url = f"http://{host}:{runner.addresses[0][1]}"
        show(as_json, {"url": url}, f"serving /retrieve at {url}  (press Ctrl-C to stop)")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
