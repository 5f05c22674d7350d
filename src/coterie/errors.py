"""The exception tree. Every message names the thing, its value, the rule and the remedy.

CoterieError
├── Interrupted        the user pressed Ctrl-C; exit code 130
├── NoQuorum           too few nodes of a federation replied; exit code 3
├── BudgetSpent        training stopped early, within its privacy budget; exit code 4
└── UserError          a mistake in the input: one line, exit code 2, no traceback
    ├── ConfigError    an unknown or invalid setting
    ├── DataError      a file that cannot be read as interactions
    ├── UnknownName    an algorithm, dataset, protocol, user or item that does not exist
    ├── PluginError    a plug-in that cannot be loaded, or claims a name that is taken
    ├── ContractError  a function of an algorithm that returns something else than it must
    ├── MissingExtra   a feature whose optional packages are not installed
    ├── RunError       a run folder that is missing, occupied or broken
    │   └── StoreError a node's store that is damaged, or a disk that is full
    ├── PolicyError    a message of a server that a node's policy, or its terms, do not allow
    ├── Diverged       scores or parameters are no longer finite
    ├── LeakError      evaluation data reached training
    └── FetchError     a dataset could not be fetched from any source
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CoterieError(Exception):
    """Base of all errors raised on purpose. The command line returns `exit_code`."""

    exit_code = 1

    def __reduce__(self) -> tuple[object, ...]:
        """Errors of other processes arrive with their text, whatever they were made from."""
        return _with_text, (type(self), str(self))


def _with_text(kind: type[CoterieError], text: str) -> CoterieError:
    error = kind.__new__(kind, text)
    error.args = (text,)
    return error


class UserError(CoterieError):
    exit_code = 2


class Interrupted(CoterieError):
    exit_code = 130


class NoQuorum(CoterieError):
    exit_code = 3


class BudgetSpent(CoterieError):
    exit_code = 4


class ConfigError(UserError):
    pass


class DataError(UserError):
    pass


class UnknownName(UserError):
    def __init__(self, kind: str, name: object, known: Iterable[object], where: str = "") -> None:
        names = [str(n) for n in known]
        super().__init__(f"unknown {kind} {str(name)!r}{where}. {did_you_mean(str(name), names)}")


class PluginError(UserError):
    pass


class ContractError(UserError):
    pass


class MissingExtra(UserError):
    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs packages that are not installed. Run: pip install 'coterie[{extra}]'"
        )


class RunError(UserError):
    pass


class StoreError(RunError):
    pass


class PolicyError(UserError):
    pass


class Diverged(UserError):
    pass


class LeakError(UserError):
    pass


class FetchError(UserError):
    pass


def did_you_mean(name: str, known: Iterable[str], limit: int = 12) -> str:
    """Suggest the closest known name; without a close one, list the known names."""
    names = list(known)[:10_000]  # comparing more would take seconds
    by_lower = {n.lower(): n for n in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {by_lower[close[0]]!r}?"
    if not names:
        return "There are none."
    shown = names if len(names) <= 3 * limit else names[:limit]
    rest = len(names) - len(shown)
    more = f" and {rest} more" if rest else ""
    return f"Known: {', '.join(shown)}{more}."
