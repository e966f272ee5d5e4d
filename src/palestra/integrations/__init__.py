"""Other people's trainers and gyms: one file each, thin, tested against the real package. Nothing is loaded unasked."""

from palestra.registry import Need, register_files

__all__ = ["register_theirs"]

_THEIRS = (
    ("gem", "gem:GemEnv", "GEM", "gem", "pip install gem-llm==0.1.0"),
    ("inspect", "inspect_env:InspectEnv", "Inspect", "inspect_ai", "pip install inspect-ai==0.3.285"),
    ("skyrl", "skyrl_rows:SkyRLTextEnv", "skyrl-gym", "skyrl_gym", "pip install skyrl-gym==0.4.0"),
    ("textarena", "textarena:TextArenaEnv", "TextArena", "textarena", "pip install textarena==0.7.4"),
    ("verifiers", "verifiers_tasks:VerifiersEnv", "verifiers", "verifiers", "pip install verifiers==0.4.0"),
    ("gymnasium", "gymnasium:GymnasiumEnv", "Gymnasium", "gymnasium", 'pip install "palestra[gymnasium]"'),
)
"""Scheme, class, and the package that it needs: its name, its module and how to install it."""

_ROWS = {
    "inspect": "palestra.integrations.inspect_env:InspectSamples",
    "skyrl": "palestra.integrations.skyrl_rows:SkyRLRows",
    "verifiers": "palestra.integrations.verifiers_tasks:VerifiersTasks",
}
"""Schemes whose environments have a finite number of tasks."""


def register_theirs() -> None:
    """Register the schemes of other people's environments. None of their packages is imported before such an id is made."""
    for scheme, entry, label, module, fix in _THEIRS:
        need = Need(label=label, module=module, fix=fix)
        rows = _ROWS.get(scheme, "")
        register_files(scheme, f"palestra.integrations.{entry}", as_text=False, needs=[need], rows=rows)
