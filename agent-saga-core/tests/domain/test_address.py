"""What an address means."""

from __future__ import annotations

import pytest

from agent_saga.domain.address import local_path, scheme_of
from agent_saga.errors import ConfigurationError


@pytest.mark.parametrize(
    ("address", "scheme"),
    [
        ("memory:", "memory"),
        ("Redis://host:1/0", "redis"),
        ("postgresql+x://h", "postgresql+x"),
        ("file:/p", "file"),
        ("/p", "file"),
        ("./a:b", "file"),
        ("C:\\logs\\a.wal", "file"),
        ("", "file"),
    ],
)
def test_schemes(address, scheme):
    assert scheme_of(address) == scheme


@pytest.mark.parametrize(
    ("address", "path", "force"),
    [
        ("/p", "/p", False),
        ("./p q", "./p q", False),
        ("file:/p", "/p", False),
        ("file:p/q", "p/q", False),
        ("file:///p", "/p", False),
        ("file://localhost/p", "/p", False),
        ("file:/50%20off?#x", "/50%20off?#x", False),
        ("file:/p?force=1", "/p", True),
        ("file:///p?force=1", "/p", True),
        ("/p?force=1", "/p?force=1", False),
    ],
)
def test_local_paths_stand_as_they_are(address, path, force):
    assert local_path(address) == (path, force)


@pytest.mark.parametrize("address", ["file://host/p", "file:", "file:?force=1", "file://"])
def test_addresses_without_a_local_path_are_refused(address):
    with pytest.raises(ConfigurationError):
        local_path(address)
