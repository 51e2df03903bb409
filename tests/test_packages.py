import os
import shutil

import pytest
from tests import packages


def test_packages_are_announced_before_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[object] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/apt-get")
    monkeypatch.setattr(packages, "announce", events.append)
    monkeypatch.setattr(packages, "_install", events.append)
    packages.install_packages("one", "two", purpose="a test", until=lambda: len(events) == 2)
    assert events == ["Installing Debian packages for a test: one two", ("one", "two")]
