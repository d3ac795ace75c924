"""The apps of served.py in Django."""

from __future__ import annotations

import json
import os

import django
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse

settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF="urls", SECRET_KEY="tests", USE_TZ=True)
django.setup()

import urls  # noqa: E402 (Django must be configured first)
from ratelimitd import AsyncClient, Client, Options  # noqa: E402
from ratelimitd.django import LimiterOptions, limiter  # noqa: E402

URL, PATIENT = os.environ["RATELIMITD_URL"], Options(timeout=20)
options = LimiterOptions(**json.loads(os.environ["LIMITER_OPTIONS"]))


@limiter(Client(URL, PATIENT), options)("web-user")
def login(_: HttpRequest) -> HttpResponse:
    return HttpResponse("served")


@limiter(AsyncClient(URL, PATIENT), options)("web-user")
async def async_login(_: HttpRequest) -> HttpResponse:
    return HttpResponse("served")


def __getattr__(name: str) -> WSGIHandler | ASGIHandler:
    """Returns the app of an interface, as ``served_by_django:asgi``."""
    if name == "asgi":
        urls.serve({"/login": async_login})
        return ASGIHandler()
    if name == "wsgi":
        urls.serve({"/login": login})
        return WSGIHandler()
    raise AttributeError(name)
