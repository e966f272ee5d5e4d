"""The settings of the forum."""

from pathlib import Path

from palestra.worlds.web.sites.on_django.settings import *  # noqa: F403
from palestra.worlds.web.sites.on_django.settings import database, plain_templates

_SPIRIT = (
    *("core", "admin", "search", "user", "user.admin", "user.auth", "category", "category.admin", "topic", "topic.admin"),
    *("topic.favorite", "topic.moderate", "topic.notification", "topic.private", "topic.unread", "comment"),
    *("comment.bookmark", "comment.flag", "comment.flag.admin", "comment.history", "comment.like", "comment.poll"),
)
ALLOWED_HOSTS = ["forum.test"]
LANGUAGE_CODE = "en"
DATABASES = database("forum.sqlite")
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    *(f"spirit.{name}" for name in _SPIRIT),
    "djconfig",
    "haystack",
]
MIGRATION_MODULES = dict.fromkeys(
    (*(f"spirit_{name.replace('.', '_')}" for name in _SPIRIT), "auth", "contenttypes", "sessions", "djconfig")
)
"""The tables are made as they are today, without the history of migrations."""
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "spirit.user.middleware.TimezoneMiddleware",
    "spirit.user.middleware.ActiveUserMiddleware",
    "djconfig.middleware.DjConfigMiddleware",
]
TEMPLATES = plain_templates(str(Path(__file__).parent / "templates"), "djconfig.context_processors.config")
_MEMORY = "django.core.cache.backends.locmem.LocMemCache"
CACHES = {"default": {"BACKEND": _MEMORY}, "st_rate_limit": {"BACKEND": _MEMORY, "LOCATION": "limits"}}
AUTHENTICATION_BACKENDS = ["spirit.user.auth.backends.UsernameAuthBackend"]
HAYSTACK_SIGNAL_PROCESSOR = "haystack.signals.BaseSignalProcessor"
ROOT_URLCONF = "palestra.worlds.web.sites.forum.urls"
LOGIN_URL = "spirit:user:auth:login"
LOGIN_REDIRECT_URL = "spirit:user:update"
LOGOUT_REDIRECT_URL = "spirit:index"
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
STORAGES = {
    "default": {"BACKEND": "spirit.core.storage.OverwriteFileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
ST_SITE_URL = "http://forum.test/"
ST_RATELIMIT_ENABLE = False
ST_UPLOAD_IMAGE_ENABLED = False
