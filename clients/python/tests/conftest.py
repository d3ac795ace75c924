from __future__ import annotations

from collections.abc import Iterator

import django
import pytest
from django.conf import settings

from service import Service

settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF="urls", SECRET_KEY="tests", USE_TZ=True)
django.setup()


@pytest.fixture(scope="session")
def shared_service() -> Iterator[Service]:
    """A ratelimitd for tests that do not stop it."""
    service = Service()
    yield service
    service.kill()


@pytest.fixture
def service() -> Iterator[Service]:
    """A ratelimitd that a test may kill."""
    service = Service()
    yield service
    service.resume()
    service.kill()
