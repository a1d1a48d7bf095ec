"""Attention pooling in which chosen columns misbehave, and every call is written down."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from eigensweep.pipeline.attention_pooling import AttentionPooling


@dataclass(frozen=True)
class FaultyPooling(AttentionPooling):
    """Columns of the sample level at the replicates named in ``faults`` misbehave.

    ``faults`` maps a replicate to ``raise``, ``exit``, ``segv``, ``hang`` or ``memory``; ``slow`` sleeps
    that long in every column; ``journal`` is a folder that gets one empty file a call.
    """

    faults: dict[int, str] = field(default_factory=dict, compare=False)
    slow: float = 0.0
    journal: str = ""

    def column(self, level, point, seed, replicate):
        if self.journal:
            name = "-".join(
                map(str, [level, point["d"], point["pooling"], replicate, time.time_ns(), os.getpid()])
            )
            (Path(self.journal) / name).touch()
        time.sleep(self.slow)
        if level == "sample":
            self._misbehave(self.faults.get(replicate, ""))
        return super().column(level, point, seed, replicate)

    def _misbehave(self, fault):
        if fault == "raise":
            raise ValueError("a scripted fault")
        if fault == "exit":
            os._exit(3)
        if fault == "segv":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == "hang":
            time.sleep(3600)
        if fault == "memory":
            hoard = []
            while True:
                hoard.append(bytearray(os.urandom(1 << 20)) * 64)
                time.sleep(0.01)


def faulty(sweep, **changes):
    """Return a sweep whose ensemble misbehaves as told."""
    import dataclasses

    plain = sweep.ensemble
    values = {f.name: getattr(plain, f.name) for f in dataclasses.fields(plain)}
    return dataclasses.replace(sweep, ensemble=FaultyPooling(**values, **changes))
