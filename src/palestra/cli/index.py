"""``palestra index``: collections of documents for the search tool: build one, try it, serve it."""

import asyncio
from pathlib import Path

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["index_app"]

index_app = typer.Typer(help="Build, try and serve collections of documents for the search tool.", no_args_is_help=True)


@index_app.command("build")
def build_command(
    corpus: Path = typer.Argument(..., help="JSON lines with text (or contents), and optionally id and title.", exists=True),
    folder: Path | None = typer.Argument(None, help="Where to; by default beside the corpus."),
) -> None:
    """Index a corpus by words (BM25)."""
    from palestra.tools.search.bm25 import build_index
    from palestra.tools.search.documents import read_corpus

    place = folder or corpus.with_suffix(".index")
    with open(corpus, "rb") as file:
        total = sum(1 for line in file if line.strip())
    columns = (TextColumn("indexing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as bar:
        task = bar.add_task("", total=total)
        count = build_index(read_corpus(corpus), place, progress=lambda done: bar.update(task, completed=done))
    typer.echo(f"{count} documents in {place}")


@index_app.command("search")
def search_command(folder: Path, query: str, k: int = typer.Option(3, "-k", help="How many documents.")) -> None:
    """Try an index."""
    from palestra.tools.search import SearchTool
    from palestra.tools.search.bm25 import Bm25Index

    typer.echo(asyncio.run(SearchTool(Bm25Index(folder), k=k)(query=query)).text)


@index_app.command("serve")
def serve_command(
    folder: Path,
    host: str = typer.Option("127.0.0.1", help="The address to listen on."),
    port: int = typer.Option(8000, help="The port to listen on."),
    token_file: Path | None = typer.Option(None, help="A file with the token that clients must send."),
) -> None:
    """Answer Search-R1's /retrieve over HTTP."""
    from aiohttp import web

    from palestra.tools.search.bm25 import Bm25Index
    from palestra.tools.search.remote import retrieval_app

    token = token_file.read_text().strip() if token_file else ""
    web.run_app(retrieval_app(Bm25Index(folder), token=token), host=host, port=port)
