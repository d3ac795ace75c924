"""The URLs of the Django app that the tests serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.urls import URLPattern, clear_url_caches, path

urlpatterns: list[URLPattern] = []


def serve(views: Mapping[str, Callable[..., Any]]) -> None:
    """Makes the app serve only these views, by their paths."""
    urlpatterns[:] = [path(at.removeprefix("/"), view) for at, view in views.items()]
    clear_url_caches()
