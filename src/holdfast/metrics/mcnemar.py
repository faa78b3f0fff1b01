"""Did more queries turn right than turned wrong, or is it chance?"""

import numpy as np

from holdfast.errors import HoldfastError


def exact_mcnemar(gained: int, lost: int) -> float:
    """The two-sided p-value, in (0, 1], of ``gained`` against ``lost`` changed queries if both were equally likely.

    Exact: the binomial tail with chance 1/2, doubled and cut at 1. Queries that did not change do not count; 1 where
    none did. It takes queries as independent.

    >>> round(exact_mcnemar(6, 0), 9), exact_mcnemar(3, 3), exact_mcnemar(0, 0)
    (0.03125, 1.0, 1.0)
    """
    if gained < 0 or lost < 0:
        raise HoldfastError(f"McNemar's test counts queries, but got {gained} and {lost}")
    changed, fewer = gained + lost, min(gained, lost)
    i = np.arange(1, fewer + 1, dtype=np.float64)
    # log of the binomial coefficients by their ratios: n over i is too large for a float beyond a thousand.
    logs = np.concatenate([[0.0], np.cumsum(np.log(changed - i + 1) - np.log(i))]) - changed * np.log(2)
    top = logs.max()
    return float(min(1.0, 2 * np.exp(top) * np.exp(logs - top).sum()))
