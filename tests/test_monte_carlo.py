"""Sampled outliers and overlaps against their limits, closely enough to tell a formula that is off by 3%."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from eigensweep.analysis import spike
from eigensweep.pipeline import seeds
from eigensweep.pipeline.attention_pooling import configure
from eigensweep.pipeline.table import sample_table

D, T, SEED, REPLICATES, REDRAWS = 400, 16, 20260507, 24, 16
RHO = np.array([3.0, 6.0])
TABLES = ("class-centered", "centered", "raw")
POOLINGS = ("mean", "causal", "optimal")
LEVELS = ("population", "sample")
ALLOWANCE = 1.0 / D
"""Relative error of the limit at this d, beyond chance: its leading term, with a constant of 1."""


def ensemble(table):
    return configure({"table": table, "correlation": {"kind": "prefix", "length": 8}}, {})


def point(pooling):
    return {"d": D, "delta": 0.5, "gamma": 0.25, "T": T, "pooling": pooling}


def measured(column, table):
    """Outlier and overlap with u at each rho, shape (2, 2).

    A raw table has a second outlier, of the vector m. Where the two come close (with mean pooling and
    rho = 6 they do: 9.6 and 9.4) their vectors mix, and what is left of each other's in both is the
    overlaps' sum and the mean of the eigenvalues that they weigh. Elsewhere this is the pair of largest
    overlap, since the other's is next to nothing.
    """
    value, overlap = column.eigenpairs(RHO, 2 if table == "raw" else 1)
    total = overlap.sum(axis=1)
    return np.array([(overlap * value).sum(axis=1) / total, total])


def averaged(column, table, directions):
    """The same for the sampled u, and averaged over it and others, which are as good.

    Given S0 and h the direction u is uniform on the sphere, so averaging over more of them changes no mean
    and takes away most of the variance.
    """
    drawn = [measured(replace(column, signal=u), table) for u in directions]
    own = measured(column, table)
    return own, np.mean([own, *drawn], axis=0)


def excess_of_the_class_means(replicate):
    """|g|^2 - delta of a table, g half the difference of its class means: its mean is 0 exactly."""
    rng = seeds.generator(SEED, "table", {"d": D, "delta": 0.5, "replicate": replicate})
    return float(np.sum(sample_table(rng, D, 2 * D).difference ** 2)) - 0.5


@pytest.fixture(scope="module")
def samples():
    """By (table, pooling, level): measurements of each replicate, and what is known to vanish on average."""
    found = {}
    for replicate in range(REPLICATES):
        directions = np.random.default_rng([SEED, replicate]).standard_normal((REDRAWS, D))
        directions /= np.linalg.norm(directions, axis=1)[:, None]
        excess = excess_of_the_class_means(replicate)
        for table, pooling in itertools.product(TABLES, POOLINGS):
            model = ensemble(table)
            for level in LEVELS:
                if (table, level) == ("class-centered", "population") and pooling != "mean":
                    # This column does not know the pooling: see below.
                    continue
                column = model.column(level, point(pooling), SEED, replicate)
                # a^2 = |b|^2/(N alpha) of the sample level has the mean 1.
                row = (*averaged(column, table, directions), [excess, column.amplitude**2 - 1.0])
                found.setdefault((table, pooling, level), []).append(row)
    for pooling in POOLINGS[1:]:
        found["class-centered", pooling, "population"] = found["class-centered", "mean", "population"]
    return {key: tuple(np.array(part) for part in zip(*rows, strict=True)) for key, rows in found.items()}


def test_the_class_means_are_those_of_the_sampled_tables():
    model, place = ensemble("centered"), point("mean")
    column = model.column("population", place, SEED, 3)
    # h = sqrt(gain) g
    assert np.sum(column.noise**2) / model.gain(place) == pytest.approx(excess_of_the_class_means(3) + 0.5)
    one, other = (
        ensemble("class-centered").column("population", point(pooling), SEED, 3) for pooling in POOLINGS[:2]
    )
    assert one.value.tobytes() == other.value.tobytes()
    assert one.signal.tobytes() == other.signal.tobytes()


def mean_and_error(values, vanishing):
    """Mean of each column of ``values``, given variables whose true mean is zero, with standard error."""
    vanishing = vanishing[:, np.ptp(vanishing, axis=0) > 1e-9]
    design = np.column_stack([np.ones(len(values)), vanishing])
    coefficients, *_ = np.linalg.lstsq(design, values, rcond=None)
    rest = values - design @ coefficients
    variance = np.sum(rest**2, axis=0) / (len(values) - design.shape[1])
    return coefficients[0], np.sqrt(variance * np.linalg.inv(design.T @ design)[0, 0])


def theory(table, pooling, level):
    """Outlier and overlap at each rho, shape (2, 2), at the realised ratios."""
    model = ensemble(table)
    ratios = {item.name: item.compute(point(pooling)) for item in model.derived}
    delta, gamma = ratios["delta_realised"], ratios["gamma_realised"]
    spiked = {"table": table, "gain": ratios["alpha"] / ratios["kappa"]}
    if level == "population":
        return np.array(
            [spike.population_outlier(RHO, delta, **spiked), spike.population_overlap(RHO, delta, **spiked)]
        )
    return np.array(
        [
            spike.sample_outlier(RHO, delta, gamma, **spiked),
            spike.sample_overlap(RHO, delta, gamma, **spiked),
        ]
    )


def agrees(measurement, error, formula):
    """Whether a formula lies within four standard errors and the allowance, element by element."""
    return np.abs(measurement - formula) <= 4.0 * error + ALLOWANCE * np.abs(formula)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("table", TABLES)
def test_outlier_and_overlap(table, pooling, level, samples):
    _, mean, vanishing = samples[table, pooling, level]
    flat, error = mean_and_error(mean.reshape(len(mean), -1), vanishing)
    measurement, error = flat.reshape(2, 2), error.reshape(2, 2)
    formula = theory(table, pooling, level)
    assert agrees(measurement, error, formula).all()
    for factor in (0.97, 1.03):
        # Neither the outlier's formula nor the overlap's would pass at both rho if it were off by 3%.
        assert not agrees(measurement, error, factor * formula).all(axis=1).any()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("table", TABLES)
def test_the_sampled_direction_is_like_any_other(table, pooling, level, samples):
    own, mean, _ = samples[table, pooling, level]
    difference = (own - mean).reshape(len(mean), -1)
    error = np.std(difference, axis=0, ddof=1) / np.sqrt(len(mean))
    assert np.all(np.abs(np.mean(difference, axis=0)) < 4.0 * error)


def test_a_raw_tables_second_outlier(samples):
    # At the place of a spike of strength delta (1'w)^2/kappa, with an overlap of next to nothing.
    model, place = ensemble("raw"), point("causal")
    ratios = {item.name: item.compute(place) for item in model.derived}
    strength = 0.5 * ratios["weight_sum"] ** 2 / ratios["kappa"]
    found = []
    for replicate in range(12):
        value, overlap = model.column("sample", place, SEED, replicate).eigenpairs([12.0], 2)
        # rho = 12 puts the signal's outlier far above.
        assert overlap[0, 0] > 0.6
        assert overlap[0, 1] < 0.1
        found.append(value[0, 1])
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    expected = float(spike.sample_outlier(strength, 0.5, 0.25))
    assert agrees(np.mean(found), error, expected)
    assert strength == pytest.approx(
        float(spike.second_strength(0.5, ratios["weight_sum"] ** 2 / ratios["kappa"]))
    )
