"""The site of ``DJANGO_SETTINGS_MODULE`` as a WSGI application."""

from django.core.wsgi import get_wsgi_application

__all__ = ["application"]

application = get_wsgi_application()
