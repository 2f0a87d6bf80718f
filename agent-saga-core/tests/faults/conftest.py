"""Profiles of the random tests: a few hundred examples as usual, thousands with `full`.

`HYPOTHESIS_PROFILE=full` chooses one by the environment, `--hypothesis-profile=deep` by an option.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("full", settings.get_profile("usual"), max_examples=2000)
_chosen = os.environ.get("HYPOTHESIS_PROFILE", "")
if _chosen:
    settings.load_profile(_chosen)
