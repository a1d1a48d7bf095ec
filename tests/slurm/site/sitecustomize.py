"""Makes every Python of a command-line test read sweeps with the slow ensemble."""

import os

if "EIGENSWEEP_TEST_SECONDS" in os.environ:
    import slow_ensemble

    from eigensweep.pipeline import models

    models.ENSEMBLES["attention-pooling"] = slow_ensemble.configure
