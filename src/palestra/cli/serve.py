"""``palestra serve``: serve environments over the network."""

from pathlib import Path
from urllib.parse import urlsplit

import typer

from palestra.cli.options import HOST, IDS, port_option, token_file_option
from palestra.cli.results import READY_JSON, show
from palestra.errors import MissingExtra
from palestra.foundation.installation import how_to_install
from palestra.registry import typed

__all__ = ["serve_command"]


def serve_command(
    ids: list[str] = IDS,
    host: str = HOST,
    port: int = port_option(),
    token_file: Path = token_file_option(Path("token")),
    isolate: bool = typer.Option(
        False,
        help="Run plain environments in worker processes even if they do not block. An AsyncEnv stays in the server's process.",
    ),
    any_params: bool = typer.Option(False, help="Allow clients to set all task parameters, not only those in client_params."),
    tls: tuple[Path, Path] | None = typer.Option(
        None, metavar="CERT KEY", help="Certificate and key as PEM files, to use https."
    ),
    as_json: bool = READY_JSON,
) -> None:
    """Serve environments over the network. After SIGTERM or Ctrl-C the server waits up to 30 s for running episodes."""
    try:
        from palestra.serve.host import Host
        from palestra.serve.server import serve
        from palestra.serve.tokens import HOST_VARIABLE, TOKEN_VARIABLE, read_token_file
    except ModuleNotFoundError as error:
        raise MissingExtra(f"serving needs {error.name}: {how_to_install('serve')}") from None
    typed(ids)
    count = len(Host(ids).offers)  # refuses an unknown id before a token file is created
    certificate, key = tls or (None, None)

    def ready(url: str) -> None:
        lines = [
            f"serving {count} {'environment' if count == 1 else 'environments'} at {url} (token in {token_file})",
            f'palestra.make("remote:{url}#ID", token=…)',
            f"export {TOKEN_VARIABLE}=$(cat {token_file}) {HOST_VARIABLE}={urlsplit(url).netloc}",
        ]
        show(as_json, {"url": url, "environments": count, "token_file": str(token_file)}, "\n".join(lines))

    serve(
        ids,
        read_token_file(token_file),
        ready=ready,
        host=host,
        port=port,
        isolate=isolate,
        any_params=any_params,
        certificate=certificate,
        key=key,
    )
