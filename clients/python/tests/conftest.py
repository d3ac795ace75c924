from __future__ import annotations

from collections.abc import Iterator

import pytest

from service import Service


@pytest.fixture(scope="session")
def shared_service() -> Iterator[Service]:
    """A ratelimitd for tests that leave it as it is."""
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
