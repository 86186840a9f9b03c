"""Fits a map from entropy to inverse temperature to the rows of a trained head.

On a row with logits e and target logit e*, the target's probability under softmax(beta e) has the logarithmic slope

    d log p_beta(target) / d beta = e* - E_beta[e],

which falls in beta because d E_beta[e] / d beta = Var_beta(e). So the probability is log-concave in beta, with one best
beta*, and the place of e* decides where that is:

    e* = max e             beta* is infinite: sharper is always better
    E_1[e] < e* < max e    1 < beta* < infinity
    mean(e) < e* <= E_1[e] 0 < beta* <= 1: blunter is better
    e* <= mean(e)          beta* <= 0: no temperature helps

Only rows of the second kind ask for sharpening by a definite amount. Rules never go below beta = 1, and the best
permitted value of the last two kinds is then 1, by concavity.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from adatemp._monotone_root import decreasing_root
from adatemp._polynomial import Polynomial, polynomial
from adatemp._row_state import check_rows, live_logits, row_state, shifted, spread_about_maximum
from adatemp._rule import is_concrete

if TYPE_CHECKING:
    from jaxtyping import ArrayLike, Bool, Float, Int

# Points at which the fitted map is compared with itself to see whether it falls anywhere.
_GRID = 2001


@dataclasses.dataclass(frozen=True, eq=False)
class TemperatureFit:
    """A fitted map, the points it was fitted to, and how many rows there were of each kind.

    Attributes:
        rule: The map, clipped to the range of the fitted entropies.
        entropy: Entropy of each misordered row, in nats.
        beta: Best permitted inverse temperature of the same rows, max(1, beta*).
        rms: Root mean square of beta less the fitted polynomial.
        floored: Share of the misordered rows at whose entropy the polynomial is below 1, where the rule gives 1.
        on_top: Rows whose target has the largest logit, alone or tied: beta* is infinite, and they are not fitted.
        sharper: Misordered rows with beta* > 1.
        blunter: Misordered rows with 0 < beta* <= 1.
        inverted: Misordered rows whose target is not above the mean logit, beta* <= 0.
    """

    rule: Polynomial
    entropy: Float[np.ndarray, "misordered"]
    beta: Float[np.ndarray, "misordered"]
    rms: float
    floored: float
    on_top: int
    sharper: int
    blunter: int
    inverted: int

    def __str__(self) -> str:
        rows = self.on_top + len(self.beta)
        low, high = self.rule.clip
        return (
            f"degree {len(self.rule.coefficients) - 1} on {len(self.beta):,} misordered rows of {rows:,}, "
            f"entropy {low:.3f} to {high:.3f} nats, rms residual {self.rms:.3f}, "
            f"below 1 and held there in {self.floored:.0%}\n"
            f"best beta: infinite in {self.on_top:,} (target on top, not fitted), above 1 in {self.sharper:,}, "
            f"0 to 1 in {self.blunter:,}, not positive in {self.inverted:,}"
        )


def fit_inverse_temperature(
    logits: Float[ArrayLike, "*rows n"],
    target: Int[ArrayLike, "*rows"],
    *,
    degree: int = 4,
    where: Bool[ArrayLike, "*rows n"] | None = None,
    allow_non_monotone: bool = False,
) -> TemperatureFit:
    """Fits beta as a polynomial in the row's entropy, by least squares over the misordered rows.

    A misordered row is one whose target does not have the largest logit. On each, the best permitted beta is
    max(1, beta*), with beta* the solution of E_beta[e] = e*; the derivation is at the top of this file. The polynomial
    is fitted in Chebyshev form on the range of the entropies, and the rule holds its end values outside that range.

    Args:
        logits: Rows of a trained head, in the scale of its softmax, keys along the last axis.
        target: Index of the right key of each row.
        degree: Degree of the polynomial, at least 1.
        where: Mask that broadcasts to the logits, True where a key takes part.
        allow_non_monotone: Whether a map that falls somewhere in its range is returned. The published map is one: past
            its peak, the more a row has dispersed the less it is sharpened.

    Returns:
        `TemperatureFit`, whose `rule` goes to `temperature=`.

    Raises:
        TypeError: Traced or integer logits, targets that are not integers.
        ValueError: NaN logits, targets that are masked or out of range, no misordered rows, none of them better
            sharpened, fewer distinct entropies than the degree needs, or a fit that falls and was not allowed to.
    """
    degree = _check_degree(degree)
    z, target = _check_points(logits, target, where)
    at_target = np.take_along_axis(z, target[:, None], -1)[:, 0]
    wrong = at_target < z.max(-1)
    if not wrong.any():
        raise ValueError(
            f"logits: the target has the largest logit in all {len(target):,} rows, so sharper is always better and "
            "there is no best beta to fit; give rows that the head gets wrong, for instance longer ones"
        )
    # All rows are solved and the misordered kept, so that the program depends on the logits' shape alone.
    entropy, mean, beta = (np.asarray(x, np.float64)[wrong] for x in _best_beta(z, at_target))
    sharper, positive = beta > 1, at_target[wrong] > mean
    x, y = entropy, np.maximum(beta, 1)
    if not sharper.any():
        raise ValueError(
            f"logits: none of the {len(x):,} misordered rows is better sharpened, so the map would be 1 everywhere; "
            "temperature cannot help these rows"
        )

    if len(np.unique(x)) <= degree:
        raise ValueError(
            f"degree {degree} needs at least {degree + 1} misordered rows of different entropy, "
            f"got {len(np.unique(x))}; lower the degree or give more rows"
        )
    low, high = float(x.min()), float(x.max())
    centre, scale = (high + low) / 2, (high - low) / 2
    chebyshev, (_, rank, *_) = np.polynomial.chebyshev.chebfit((x - centre) / scale, y, degree, full=True)
    if rank <= degree:
        raise ValueError(
            f"degree {degree} is too high: the entropies of the {len(x):,} misordered rows determine only {rank} "
            "coefficients; lower the degree or give rows of more varied entropy"
        )
    coefficients = np.polynomial.chebyshev.cheb2poly(chebyshev)[::-1]
    if not allow_non_monotone:
        _refuse_falling(coefficients, centre, scale)
    fitted = np.polyval(coefficients, (x - centre) / scale)
    rule = polynomial(coefficients, threshold=0.0, clip=(low, high), centre=centre, scale=scale)
    return TemperatureFit(
        rule=dataclasses.replace(rule, range=(low, high)),
        entropy=x,
        beta=y,
        rms=float(np.sqrt(np.mean((y - fitted) ** 2))),
        floored=float(np.mean(fitted < 1)),
        on_top=int((~wrong).sum()),
        sharper=int(sharper.sum()),
        blunter=int((positive & ~sharper).sum()),
        inverted=int((~positive).sum()),
    )


@jax.jit
def _best_beta(z, at_target):
    """Entropy, plain mean and max(1, beta*) of rows [rows, n]; the last means nothing where the target is on top."""
    state = row_state(z, (-1,), second_moment=False)
    _, entropy, _ = spread_about_maximum(state)
    t = shifted(z, state.m, (-1,))
    t_target = at_target - state.m

    def shortfall(log_beta):
        beta = jnp.exp(log_beta)
        scaled = row_state(beta[:, None] * t, (-1,), second_moment=True)
        _, _, variance = spread_about_maximum(scaled)  # of beta t, and d E_beta[t] / d log beta = variance / beta
        return t_target - scaled.s / scaled.l / beta, -variance / beta

    # With d the smallest gap below the maximum and beta >= 1 / d, each key takes at most d exp(-beta d) off E_beta[t].
    # At beta = (1 + log n) / d that is less than d in all, and the target's gap is at least d: the root is below.
    d = -jnp.max(t, -1, where=t < 0, initial=-jnp.inf)
    high = jnp.log((1 + jnp.log(z.shape[-1])) / d)
    log_beta = decreasing_root(shortfall, jnp.zeros_like(high), jnp.maximum(high, 1e-3))
    mean = state.m + jnp.sum(t, -1, where=z != -jnp.inf) / state.count.astype(z.dtype)
    return entropy, mean, jnp.exp(log_beta)


def _refuse_falling(coefficients, centre, scale) -> None:
    x = np.linspace(-1, 1, _GRID)
    beta = np.maximum(np.polyval(coefficients, x), 1)
    fall = np.maximum.accumulate(beta) - beta
    worst = int(fall.argmax())
    if fall[worst] <= 1e-9 * beta.max():
        return
    peak = int(beta[: worst + 1].argmax())
    entropies = centre + scale * x
    raise ValueError(
        f"the fitted map is not monotone: beta falls from {beta[peak]:.3f} at {entropies[peak]:.3f} nats to "
        f"{beta[worst]:.3f} at {entropies[worst]:.3f} nats, so rows that dispersed more would be sharpened less; lower "
        "the degree, give more rows, or pass allow_non_monotone=True to take it"
    )


def _check_degree(degree) -> int:
    try:
        degree = operator.index(degree)
    except TypeError:
        raise TypeError(f"degree must be an integer, got {degree!r}") from None
    if degree < 1:
        raise ValueError(f"degree must be at least 1, got {degree}; for one beta everywhere write constant(beta=...)")
    return degree


def _check_points(logits, target, where):
    """Live logits as a host array [rows, n] and targets as [rows]."""
    if not all(is_concrete(x) for x in (logits, target, where)):
        raise TypeError(
            "logits, target and where must have values, and here they are traced; "
            "call fit_inverse_temperature outside jit, grad, vmap and scan"
        )
    logits, _, where = check_rows(logits, -1, where)
    target = np.asarray(target)
    if target.dtype.kind not in "iu":
        raise TypeError(f"target must be integer indices of keys, got {target.dtype}")
    if target.shape != logits.shape[:-1]:
        raise ValueError(
            f"target must have one index a row, shape {logits.shape[:-1]}, got {target.shape}; "
            "keys run along the last axis of logits"
        )
    n = logits.shape[-1]
    if target.size == 0:
        raise ValueError(f"logits of shape {logits.shape} have no rows to fit")
    if (bad := (target < 0) | (target >= n)).any():
        raise ValueError(f"target must be from 0 to {n - 1}, got {target[bad].flat[0]} in {int(bad.sum())} rows")
    z, target = np.asarray(live_logits(logits, where)).reshape(-1, n), target.reshape(-1)
    if (bad := np.isnan(z).any(-1)).any():
        raise ValueError(f"logits hold NaN in {int(bad.sum())} rows; remove those rows")
    if (bad := np.isneginf(np.take_along_axis(z, target[:, None], -1)[:, 0])).any():
        raise ValueError(f"target is a masked key (where False, or a logit of -inf) in {int(bad.sum())} rows")
    return z, target
