"""What a user is told when something is wrong: a thing, a value, a reason and a remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with what was asked.

    Parameters
    ----------
    thing : str
        What is wrong, by the name the user gave it: ``grid.delta``, ``--cluster``, a path.
    value : str
        The offending value as the user would write it; empty when there is none.
    reason : str
        Why it is wrong.
    remedy : str
        What to do about it.
    line : int, optional
        Its line in the file that it came from.
    """

    thing: str
    value: str
    reason: str
    remedy: str
    line: int | None = None

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line is not None else ""
        value = f" = {self.value}" if self.value else ""
        return f"{place}{self.thing}{value}: {self.reason}; {self.remedy}"


class EigensweepError(Exception):
    """Base of every error that eigensweep raises on purpose."""


class InputError(EigensweepError):
    """The request can't be served as written; nothing was computed or written.

    Parameters
    ----------
    faults : iterable of Fault
        Everything that is wrong, so that one reading mends it all.
    """

    def __init__(self, faults: Iterable[Fault] | Fault) -> None:
        self.faults = (faults,) if isinstance(faults, Fault) else tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    def __reduce__(self) -> tuple[type[InputError], tuple[tuple[Fault, ...]]]:
        # The default would rebuild the error from its text and lose the faults on a Dask wire.
        return InputError, (self.faults,)


class StudyError(EigensweepError):
    """A study on disk can't be used: locked, damaged, unwritable or not a study."""


class StoppedError(StudyError):
    """A run stopped before its end; what is done stays done, and the same command goes on."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Say which known word was probably meant.

    Parameters
    ----------
    word : str
        What was written.
    known : iterable of str
        What could have been written.

    Returns
    -------
    str
        A remedy: the closest known word if one is close, else all of them.

    Examples
    --------
    >>> nearest("guma", ["delta", "gamma"])
    "did you mean 'gamma'?"
    >>> nearest("zzz", ["delta", "gamma"])
    'choose among: delta, gamma'
    """
    choices = list(known)
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else f"choose among: {', '.join(choices)}"
