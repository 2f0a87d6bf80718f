"""The common path: a value that can be stored as it is, found without a copy.

Rules of this part:

- `plain` says True only for values that JSON carries exactly and that hold nothing that looks
  like a secret: dict with harmless text keys, list, short text, int within 2^53, finite float,
  bool, None, all of exactly these types, within the bounds of `limits`.
- Everything else goes the slow way (`walk`); False is always a safe answer.
- `_KNOWN` keeps names of fields that were judged harmless; it is bounded and grows only.
"""

from __future__ import annotations

import math
from typing import Any, Final

from agent_saga.domain.secrets import looks_secret, secret_key
from agent_saga.wal.limits import MAX_DEPTH, MAX_ITEMS, MAX_PAYLOAD, MAX_TEXT

TAG: Final = "$t"
"""The field that marks a value JSON cannot carry; a user's dict with this key is escaped."""

SAFE_INT: Final = 2**53
_KNOWN: Final[set[str]] = set()
_KNOWN_MAX: Final = 4096
_SHORT_TEXT: Final = 9


def plain(value: object) -> bool:
    """Whether the value can be stored as it is."""
    texts: list[str] = []
    if type(value) is dict and len(value) <= MAX_ITEMS and value.keys() <= _KNOWN:
        found = _plain_items(value.values(), MAX_DEPTH - 1, texts)
    else:
        found = _plain_items((value,), MAX_DEPTH, texts)
    if not found or not texts:
        return found
    joined = "\n".join(texts)  # one look at all of them can only see more than one at each
    if len(joined) > MAX_TEXT and (len(joined) > MAX_PAYLOAD or max(map(len, texts)) > MAX_TEXT):
        return False
    return not looks_secret(joined)


def plain_data(value: object) -> bool:
    """Whether JSON carries the value exactly, secrets or not."""
    return _data_items((value,), MAX_DEPTH)


def _plain_dict(value: dict[Any, Any], depth: int, texts: list[str]) -> bool:
    if depth <= 0 or len(value) > MAX_ITEMS:
        return False
    if not value.keys() <= _KNOWN:
        for key in value:
            if key not in _KNOWN and not _harmless(key):
                return False
    return _plain_items(value.values(), depth, texts)


def _plain_items(values: Any, depth: int, texts: list[str]) -> bool:
    for value in values:
        kind = type(value)
        if kind is str:
            if len(value) >= _SHORT_TEXT:
                texts.append(value)
        elif kind is int:
            if not -SAFE_INT <= value <= SAFE_INT:
                return False
        elif kind is dict:
            if not _plain_dict(value, depth - 1, texts):
                return False
        elif kind is list:
            if depth <= 0 or len(value) > MAX_ITEMS or not _plain_items(value, depth - 1, texts):
                return False
        elif not _plain_scalar(value, kind):
            return False
    return True


def _data_items(values: Any, depth: int) -> bool:
    for value in values:
        kind = type(value)
        if kind is str:
            continue
        if kind is int:
            if not -SAFE_INT <= value <= SAFE_INT:
                return False
        elif kind is dict:
            if depth <= 0 or not (value.keys() <= _KNOWN or _text_keys(value)):
                return False
            if not _data_items(value.values(), depth - 1):
                return False
        elif kind is list:
            if depth <= 0 or not _data_items(value, depth - 1):
                return False
        elif not _plain_scalar(value, kind):
            return False
    return True


def _text_keys(value: dict[Any, Any]) -> bool:
    return all(type(key) is str and key != TAG for key in value)


def _plain_scalar(value: Any, kind: type) -> bool:
    if kind is bool or value is None:
        return True
    return kind is float and math.isfinite(value)


def _harmless(key: object) -> bool:
    if type(key) is not str or len(key) > MAX_TEXT or key == TAG:
        return False
    if secret_key(key) or looks_secret(key):
        return False
    if len(_KNOWN) < _KNOWN_MAX and len(key) <= 64:
        _KNOWN.add(key)
    return True
