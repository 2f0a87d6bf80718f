"""What looks like a secret: names of fields, and shapes of values.

Rules of this part:

- A field is judged by its name: words such as `password`, `api_key` or `pwd`, however they are
  spelt (`apiKey`, `X-Api-Key`, `new_password`). A name that only counts, names or limits a secret
  (`token_count`, `secret_name`, `max_tokens`) is harmless, but its value is still looked at.
- A value is judged by its shape alone, wherever it stands in a text: prefixes that vendors give
  their keys, `Bearer …`, PEM blocks, addresses with a password inside, `password=…` in a text.
- `_BEHIND` and `_AHEAD` are the cheap first look: every shape contains one of them. Whoever adds a
  shape adds its piece; a test holds both together.
- Guessing has no end: a secret without a shape, under a harmless name, passes. `guarantees()` says
  so.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Final

__all__ = ["MASK", "looks_secret", "mask_text", "secret_key"]

MASK: Final = "***"
"""What stands in the log in place of a secret."""

_NAMES: Final = (
    r"pass(?:word|wd|phrase|code)|pwd|secret|client[_-]?secret|api[_-]?key|access[_-]?token|"
    r"refresh[_-]?token|auth[_-]?token|private[_-]?key|account[_-]?key|shared[_-]?access[_-]?key"
)

_SHAPES: Final = (
    r"(?:sk|rk)_(?:live|test|prod)_[0-9A-Za-z]{8,}",
    r"whsec_[0-9A-Za-z+/=]{16,}",
    r"(?<![0-9A-Za-z])sk-(?=[\w-]*\d)[\w-]{20,}",
    r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}",
    r"gh[pousr]_[0-9A-Za-z]{20,}",
    r"github_pat_\w{20,}",
    r"gl(?:pat|dt|rt|ft|cbt|ptt|oas|soat|imt|agent)-[\w.-]{16,}",
    r"xox[abceoprs](?:\.[a-z]+)?-[\w-]{10,}",
    r"xapp-\d-[\w-]{10,}",
    r"hooks\.slack\.com/services/[\w/]{16,}",
    r"AIza[\w-]{30,}",
    r"ya29\.[\w-]{20,}",
    r"GOCSPX-[\w-]{16,}",
    r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
    r"SG\.[\w-]{16,}\.[\w-]{16,}",
    r"(?<![0-9A-Za-z])SK[0-9a-f]{32}",
    r"shp(?:at|ca|pa|ss)_[0-9A-Fa-f]{24,}",
    r"npm_[0-9A-Za-z]{30,}",
    r"pypi-[\w-]{16,}",
    r"(?<![0-9A-Za-z])hf_[0-9A-Za-z]{20,}",
    r"do[opr]_v1_[0-9a-f]{40,}",
    r"dapi[0-9a-f]{32}",
    r"hv[sbr]\.[\w-]{20,}",
    r"sq0(?:atp|csp|idp)-[\w-]{20,}",
    r"(?<![0-9A-Za-z])key-[0-9a-f]{32}",
    r"(?:secret|ntn)_[0-9A-Za-z]{40,}",
    r"lin_api_[0-9A-Za-z]{20,}",
    r"gsk_[0-9A-Za-z]{20,}",
    r"xai-[0-9A-Za-z]{20,}",
    r"pplx-[0-9A-Za-z]{20,}",
    r"(?<![0-9A-Za-z])r8_[0-9A-Za-z]{30,}",
    r"sbp_[0-9a-f]{30,}",
    r"sntr(?:ys|yu)_[\w=+/-]{20,}",
    r"gl(?:sa|c)_[\w=+/-]{20,}",
    r"dp\.(?:pt|st|ct|sa)\.[\w.-]{20,}",
    r"pscale_(?:tkn|pw|oauth)_[\w.-]{16,}",
    r"PMAK-[0-9a-f-]{20,}",
    r"NRAK-[0-9A-Z]{20,}",
    r"\.atlasv1\.[\w-]{20,}",
    r"AGE-SECRET-KEY-1[0-9A-Z]{20,}",
    r"\d{8,10}:AA[\w-]{30,}",
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|\Z)",
    r"(?i:bearer|basic)\s+(?=\S*\d)[\w.~+/=-]{12,}",
    r"://[^\s/:@]*:[^\s/@]+@",
    rf"(?i:(?<![0-9A-Za-z])(?:{_NAMES})=)(?!\*\*\*)[^\s&;,\"']{{4,}}",
    rf"(?i:[\"'](?:{_NAMES})\\?[\"']:\s*)\\?[\"'](?!\*\*\*)[^\"'\\]{{4,}}\\?[\"']",
)

# The end of a name in front of `=`, or of a quote and `:`; pieces of one length stand together.
_NAME_ENDS: Final = ("(?i:ecret|hrase|token)", "(?i:word|code)", "(?i:key)", "(?i:wd)")
_NAMES_LAST: Final = "(?i:[edrsw][denty])"

# A letter; the end of a shape's piece up to that letter; the two letters before this end, by which
# most such letters are passed over at once; all that stands in front of this end. Python looks
# behind at one length only, so each text here holds pieces of one length.
_BEHIND: Final = (
    ("_", "_", "[abcehloprstvy][18acdefikmnoprstu]", (
        "_live|_test|_prod|whsec|b_pat|shp(?:at|ca|pa|ss)|n_api|ecret|scale",
        "trys|tryu|glsa",
        "gh[pousr]|npm|ntn|gsk|glc|sbp|_v1",
        "hf|r8",
    )),
    ("-", "-", "[AGPabdeflmnprst][EKXikpstxy]", (
        "GOCSPX|glsoat|lagent|sq0(?:atp|csp|idp)",
        "glpat|gl(?:cbt|ptt|oas|imt)",
        "gl(?:dt|rt|ft)|xapp|pypi|pplx|PMAK|NRAK",
        "key|xai|AGE",
        "sk",
    )),
    (r"\.", r"\.", "[2Sdkv][9Gbprs]", ("hooks", "ya29", "hv[sbr]", "SG|dp")),
    ("=", "=", _NAMES_LAST, _NAME_ENDS),
    (":", "[\"']:", _NAMES_LAST, _NAME_ENDS),
    (":", r"\\[\"']:", _NAMES_LAST, _NAME_ENDS),
    ("J", "J", "ey", ("",)),
    ("p", "p", "da", ("",)),
)  # fmt: skip
_AHEAD: Final = (
    "-(?=----BEGIN)", r"\.(?=atlasv1)", r":(?=//[^\s/]*@)", ":(?=AA)", "A(?:KIA|SIA|BIA|CCA|Iza)",
    "SK(?=[0-9a-f]{8})", "b(?i:earer|asic)", "B(?i:earer|asic)", "xox",
)  # fmt: skip


def _first_look_pattern() -> str:
    """One expression of all first looks.

    Each alternative begins with one plain letter: only then does Python pass over, without trying
    any of them, what cannot begin one.
    """
    behind = [
        f"{letter}(?<={last}{end})(?:{'|'.join(f'(?<=(?:{piece}){end})' for piece in pieces)})"
        for letter, end, last, pieces in _BEHIND
    ]
    return "|".join((*behind, *_AHEAD))


def _first_first_look(text: str) -> object:
    """Take the first look for the first time in a process: makes its expression.

    Making it takes as long as importing twenty modules.
    """
    global _first_look  # noqa: PLW0603 - a cached function would be one more call for each text
    _first_look = re.compile(_first_look_pattern()).search
    return _first_look(text)


_first_look: Callable[[str], object] = _first_first_look
_SHORTEST: Final = 9

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_SECRET_WORDS: Final = frozenset(
    {
        "password", "passwords", "passwd", "passphrase", "passcode", "pwd", "secret",
        "secrets", "token", "authorization", "auth", "cookie", "cookies", "credential",
        "credentials", "bearer", "jwt", "otp", "cvv", "cvc", "apikey", "secretkey",
        "privatekey", "accesskey", "authtoken", "accesstoken", "refreshtoken", "clientsecret",
        "mnemonic", "dsn",
    }
)  # fmt: skip
_SECRET_PAIRS: Final = frozenset(
    {
        ("api", "key"), ("private", "key"), ("access", "key"), ("secret", "key"),
        ("session", "key"), ("signing", "key"), ("encryption", "key"), ("master", "key"),
        ("account", "key"), ("access", "tokens"), ("refresh", "tokens"), ("auth", "tokens"),
        ("api", "tokens"), ("bearer", "tokens"), ("connection", "string"), ("seed", "phrase"),
        ("api", "keys"), ("private", "keys"), ("pass", "word"), ("pass", "phrase"),
        ("db", "pass"), ("smtp", "pass"), ("user", "pass"), ("pin", "code"), ("card", "pin"),
    }
)  # fmt: skip
_SECRET_NAMES: Final = frozenset({("pass",), ("pin",)})
_HARMLESS_ENDS: Final = frozenset(
    {
        "count", "counts", "limit", "limits", "budget", "type", "types", "name", "names", "id",
        "ids", "ref", "refs", "arn", "url", "uri", "expiry", "expires", "expiration", "ttl",
        "length", "len", "used", "usage", "max", "min", "policy", "field", "fields", "present",
        "required", "status", "version", "at", "in", "rotation", "enabled", "total", "method",
        "provider", "scheme", "mode", "cost", "price", "rate",
    }
)  # fmt: skip
_HARMLESS_NAMES: Final = frozenset(
    {
        ("page", "token"), ("next", "token"), ("next", "page", "token"), ("sync", "token"),
        ("continuation", "token"), ("pass", "through"), ("cancel", "token"), ("max", "token"),
        ("min", "token"), ("fencing", "token"), ("idempotency", "token"),
    }
)  # fmt: skip


@functools.cache
def _secret() -> re.Pattern[str]:
    """One expression of all shapes; made when the first look has found something."""
    return re.compile("|".join(_SHAPES))


def looks_secret(text: str) -> bool:
    """Whether a secret stands somewhere in the text."""
    if len(text) < _SHORTEST:
        return False
    return _first_look(text) is not None and _secret().search(text) is not None


def mask_text(text: str) -> str:
    """The text with every secret in it replaced by `***`."""
    return _secret().sub(MASK, text) if looks_secret(text) else text


def secret_key(name: str) -> bool:
    """Whether a field of this name holds a secret."""
    words = tuple(word.lower() for word in _WORDS.findall(name))
    while words and words[-1].isdigit():
        words = words[:-1]
    if not words or words in _HARMLESS_NAMES or words[-1] in _HARMLESS_ENDS:
        return False
    if words in _SECRET_NAMES or not _SECRET_WORDS.isdisjoint(words):
        return True
    return any(pair in _SECRET_PAIRS for pair in pairwise(words))
