"""The settings that all Django sites begin with. Paths are relative: each episode has its own working folder."""

from typing import Any

SECRET_KEY = "the-sites-of-an-episode-have-no-secrets"  # noqa: S105 - as it says
DEBUG = False
USE_TZ = True
TIME_ZONE = "UTC"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
HAYSTACK_CONNECTIONS = {"default": {"ENGINE": "haystack.backends.simple_backend.SimpleEngine"}}
STATIC_URL = "/static/"
MEDIA_URL = "/media/"
MEDIA_ROOT = "media"
EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
LOGGING_CONFIG = None
_CONTEXT = (
    "django.template.context_processors.request",
    "django.contrib.auth.context_processors.auth",
    "django.template.context_processors.i18n",
    "django.contrib.messages.context_processors.messages",
)


def database(name: str) -> dict[str, Any]:
    """Return the setting ``DATABASES``."""
    return {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": name, "ATOMIC_REQUESTS": True}}


def plain_templates(folder: str, *context: str) -> list[dict[str, Any]]:
    """Return the setting ``TEMPLATES``: those in ``folder`` come before those of the application."""
    loaders = ["django.template.loaders.filesystem.Loader", "django.template.loaders.app_directories.Loader"]
    return [
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "DIRS": [folder],
            "APP_DIRS": False,
            "OPTIONS": {
                "loaders": [("django.template.loaders.cached.Loader", loaders)],
                "context_processors": [*_CONTEXT, *context],
            },
        }
    ]
