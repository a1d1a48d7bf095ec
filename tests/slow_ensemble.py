"""Attention pooling that takes its time, so that there is some to lose nodes in.

Importable by workers, since the tests put this folder on their path.
"""

import os
import time
from dataclasses import dataclass, fields, replace

from eigensweep.pipeline import attention_pooling
from eigensweep.pipeline.attention_pooling import AttentionPooling
from eigensweep.pipeline.ensemble import Work

LAST = (20, 1.0, "causal", 1)
"""The last column of the sweep of the SLURM tests: d, gamma, pooling, replicate."""
SECONDS = "EIGENSWEEP_TEST_SECONDS"
"""Environment variable: seconds that a column sleeps, for sweeps that the command line reads."""


@dataclass(frozen=True)
class SlowPooling(AttentionPooling):
    """The same numbers, ``slow`` seconds later a column.

    The very last column takes ``dawdler`` seconds more, and eats memory if ``hoarder``.
    """

    slow: float = 0.0
    dawdler: float = 0.0
    hoarder: bool = False

    def work(self, level, point):
        # Every block is a task of its own.
        return Work(1.0, super().work(level, point).bytes)

    def column(self, level, point, seed, replicate):
        time.sleep(self.slow)
        last = (point["d"], point.get("gamma"), point["pooling"], replicate) == LAST
        if last and level == "sample":
            time.sleep(self.dawdler)
            hoard = []
            while self.hoarder:
                hoard.append(bytearray(os.urandom(1 << 20)) * 32)
                time.sleep(0.02)
        return super().column(level, point, seed, replicate)


def slowed(sweep, **changes):
    """Return a sweep of the same numbers that takes its time."""
    values = {field.name: getattr(sweep.ensemble, field.name) for field in fields(sweep.ensemble)}
    return replace(sweep, ensemble=SlowPooling(**values, **changes))


def configure(options, files):
    """Make the ensemble of a ``[model]`` table, slow by what the environment says."""
    plain = attention_pooling.configure(options, files)
    values = {field.name: getattr(plain, field.name) for field in fields(plain)}
    return SlowPooling(**values, slow=float(os.environ.get(SECONDS, "0")))
