"""The rules, each a check of its own that names what it found. A check that has nothing to look at does not apply."""

import check_rows
import check_privacy
import check_figures
import check_commands
import check_features
from trial import CHECKS, DoesNotApply, Trial

__all__ = ["CHECKS", "DoesNotApply", "Trial", "check_rows", "check_privacy", "check_figures", "check_commands", "check_features", "judge"]


def judge(trial):
    """What every check that applies found: name -> problems."""
    found = {}
    for name, function in CHECKS.items():
        try:
            found[name] = list(function(trial))
        except DoesNotApply:
            pass
    return found
