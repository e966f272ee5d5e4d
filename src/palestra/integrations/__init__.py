"""Other people's trainers and gyms: one file each, thin, tested against the real package. Nothing is loaded unasked."""

from palestra.registry import Need, register_files

__all__ = ["register_theirs"]


def register_theirs() -> None:
    """Register the schemes of other people's environments. None of their packages is imported before such an id is made."""
    register_files(
        "gymnasium",
        "palestra.integrations.gymnasium:GymnasiumEnv",
        as_text=False,
        needs=[Need(label="Gymnasium", module="gymnasium", extra="gymnasium")],
    )
