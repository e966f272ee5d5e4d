"""The schemes of other projects' environments. None of their packages is imported before such an id is made."""

from palestra.bridges.versions import TRIED
from palestra.registry import Need, register_files

_THEIRS = (
    ("gem", "gem:GemEnv", "GEM", "gem", "gem"),
    ("inspect", "inspect_env:InspectEnv", "Inspect", "inspect_ai", "inspect"),
    ("skyrl", "skyrl_rows:SkyRLTextEnv", "skyrl-gym", "skyrl_gym", "skyrl_rows"),
    ("textarena", "textarena:TextArenaEnv", "TextArena", "textarena", "textarena"),
    ("verifiers", "verifiers_tasks:VerifiersEnv", "verifiers", "verifiers", "verifiers"),
    ("gymnasium", "gymnasium:GymnasiumEnv", "Gymnasium", "gymnasium", "gymnasium"),
)
"""Scheme, class, and the package that it needs: its name, its module, and its key in ``TRIED``."""

_ROWS = {
    "inspect": "palestra.bridges.inspect_env:InspectSamples",
    "skyrl": "palestra.bridges.skyrl_rows:SkyRLRows",
    "verifiers": "palestra.bridges.verifiers_tasks:VerifiersTasks",
}
"""Schemes whose environments have a finite number of tasks."""
_BROWSERGYM = (
    'uv venv browsergym && uv pip install --python browsergym/bin/python "browsergym-core==0.14.3" '
    '"browsergym-miniwob==0.14.3"; '
    "then set PALESTRA_BROWSERGYM_PYTHON to browsergym/bin/python"
)
"""BrowserGym pins a Playwright of its own, so it has a virtual environment of its own."""

for scheme, entry, label, module, bridge in _THEIRS:
    tried = TRIED[bridge]
    need = Need(label=label, module=module, extra=tried.extra, fix="" if tried.extra else tried.fix)
    rows = _ROWS.get(scheme, "")
    register_files(scheme, f"palestra.bridges.{entry}", as_text=False, needs=[need], rows=rows)
register_files(
    "browsergym",
    "palestra.bridges.browsergym:BrowserGymEnv",
    as_text=False,
    needs=[Need(label="BrowserGym", variable="PALESTRA_BROWSERGYM_PYTHON", fix=_BROWSERGYM)],
)
register_files(
    "openenv",
    "palestra.bridges.openenv_env:OpenEnv",
    as_text=False,
    needs=[Need(label="websockets", module="websockets", extra="serve")],
)
