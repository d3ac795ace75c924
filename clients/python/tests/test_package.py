"""The package's page on PyPI."""

from __future__ import annotations

import re
from importlib.metadata import metadata

PACKAGE = metadata("ratelimitd")


def test_the_package_says_where_it_comes_from() -> None:
    urls = dict(url.split(", ", 1) for url in PACKAGE.get_all("Project-URL") or [])
    assert {"Homepage", "Repository", "Issues", "Changelog"} <= urls.keys()
    assert all(url.startswith("https://github.com/ratelimitd/ratelimitd") for url in urls.values())


def test_links_of_the_readme_work_outside_of_the_repository() -> None:
    links = re.findall(r"\]\(([^)]+)\)", PACKAGE["Description"])
    assert links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
