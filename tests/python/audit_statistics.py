"""Expected numbers for the audit's statistics, from SciPy and statsmodels.

    python tests/python/audit_statistics.py > tests/oracle/audit_statistics.json

statsmodels 0.15.0 and patsy are needed here alone; they are not among the pinned packages of the tests.
"""

import json
import sys

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import confint_proportions_2indep, proportions_ztest


def shares():
    cases = [((3, 10), (7, 12)), ((0, 40), (5, 60)), ((30, 30), (1, 31)), ((50, 100), (50, 100)),
             ((997, 1000), (9_800, 10_000)), ((1, 1_000_000), (7, 1_000_000)),
             ((9_123_456, 10_000_000), (812_345, 900_000)), ((300, 400), (1, 2)), ((0, 1), (1, 1)),
             ((12_345, 45_678), (11_111, 44_444)), ((2, 3), (0, 3)), ((450, 1000), (550, 1000))]
    for one, other in cases:
        low, high = confint_proportions_2indep(*one, *other, compare="diff", method="newcomb")
        p = proportions_ztest([one[0], other[0]], [one[1], other[1]])[1]
        yield {"one": one, "other": other, "low": low, "high": high, "p": p}


def means():
    random = np.random.default_rng(7)
    sizes = [(2, 2), (2, 40), (5, 9), (30, 30), (200, 17), (1000, 1500), (50, 3)]
    for index, (n, m) in enumerate(sizes):
        one = random.lognormal(0.2 * index, 0.5, n).round(6)
        other = random.lognormal(0.3, 0.2 + 0.1 * index, m).round(6)
        found = stats.ttest_ind(one, other, equal_var=False)
        interval = found.confidence_interval(0.95)
        yield {"one": one.tolist(), "other": other.tolist(), "low": interval.low,
               "high": interval.high, "p": found.pvalue}


def tails():
    for freedom in [1, 1.5, 2, 3.7, 10, 29.5, 100, 1e3, 54_321.5, 1e6, 1e7]:
        for t in [1e-6, 0.01, 0.5, 1, 1.96, 3, 6, 12, 30]:
            yield [freedom, t, 2 * stats.t.sf(t, freedom)]
    for t in [1e-6, 0.01, 0.5, 1, 1.5, 1.96, 2.2, 3, 6, 12, 30]:
        yield [0, t, 2 * stats.norm.sf(t)]


def curves():
    for counts in [(30, 30), (100, 5_000), (1_000_000, 40_000)]:
        for scaled in [0.3, 0.8, 0.999, 1.0, 1.4, 3]:
            difference = scaled * (sum(counts) / (counts[0] * counts[1])) ** 0.5
            root = (counts[0] * counts[1] / sum(counts)) ** 0.5
            yield {"difference": difference, "counts": counts, "p": stats.kstwobign.sf(difference * root)}


def adjusted():
    random = np.random.default_rng(3)
    cases = [[0.5], [0.01, 0.04, 0.03, 0.005], [1.0, 1.0, 0.2], [0.02, 0.02, 0.02], [0.0, 0.5, 1e-12],
             random.beta(0.3, 2, 60).tolist()]
    for p in cases:
        holm = multipletests(p, method="holm")[1].tolist()
        yield {"p": p, "holm": holm, "by": multipletests(p, method="fdr_by")[1].tolist()}


def main():
    student = [1, 1.3, 2, 2.5, 4, 7.7, 15, 29.9, 120, 999.5, 9_999, 99_999, 100_001, 1e6, 1e8]
    oracle = {
        "shares": list(shares()),
        "means": list(means()),
        "student": [[freedom, stats.t.ppf(0.975, freedom)] for freedom in student],
        "tails": list(tails()),
        "curves": list(curves()),
        "adjusted": list(adjusted()),
    }
    json.dump(oracle, sys.stdout, default=float)
    print()


main()
