"""The smallest model of bigram-backcopy that can have a sink: its loss in closed form, and its gradient flow.

Attention and MLP read the same one-hot token and their outputs add up to the logits of the next token. The MLP is
right from the start: it gives log P(· | v) after a token v. Attention has one head, whose keys are <bos> and the
characters before. After a token v that is no trigger, <bos> has the logit α[v] and every character 0; the value of
<bos> is a vector β, that of character i is ξ[i] at i and 0 elsewhere. With W[i] occurrences of i among W characters,

    logits(v) = log P(· | v) + m(v),        m(v) = (e^α[v] β + ξ W[·]) / (e^α[v] + W).

What attention adds is noise for such a token: the loss is least where m(v) is the same number for all successors. After
a trigger the head must look back instead; its queries share nothing with the others, and are left out here.

Everything here is NumPy in float64: flows run over eight decades of time, where float32 rounding would be seen.

References:
    Guo, Pai, Bai, Jiao, Jordan, Mei: Active-Dormant Attention Heads, 2024. https://arxiv.org/abs/2410.13835
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from adatemp._compat import require

if TYPE_CHECKING:
    from jaxtyping import ArrayLike, Float


class Loss(NamedTuple):
    """Excess loss of tokens that are no triggers, in nats, and its derivatives.

    Attributes:
        value: Σ over v of π[v] KL(P(· | v) ‖ softmax(logits(v))), the mean over contexts.
        alpha: derivative in each α[v], [M].
        beta: derivative in each β[i], [V]; it adds up to 0.
    """

    value: float
    alpha: Float[np.ndarray, " M"]
    beta: Float[np.ndarray, " V"]


class Flow(NamedTuple):
    """A gradient flow at the times asked for.

    Attributes:
        time: [K].
        alpha: sink logits, [K, M].
        beta: value of <bos>, [K, V].
        loss: excess loss in nats, [K].
    """

    time: Float[np.ndarray, " K"]
    alpha: Float[np.ndarray, "K M"]
    beta: Float[np.ndarray, "K V"]
    loss: Float[np.ndarray, " K"]


@dataclasses.dataclass(frozen=True, eq=False)
class ReducedModel:
    """What does not change while the sink forms; `reduced_model` checks it.

    Attributes:
        transitions: P(· | v) of the M tokens that are no triggers, [M, V].
        weights: π, how often each of them is the last token, [M], adding up to 1.
        noise: ξ[i] W[i] in each of R contexts, [R, V]; the loss is the mean over contexts.
        counted: W, the number of characters in each context, [R].
    """

    transitions: Float[np.ndarray, "M V"]
    weights: Float[np.ndarray, " M"]
    noise: Float[np.ndarray, "R V"]
    counted: Float[np.ndarray, " R"]

    def loss(self, alpha: Float[ArrayLike, " M"], beta: Float[ArrayLike, " V"]) -> Loss:
        """The excess loss and its derivatives in closed form.

        With q = softmax(logits) and s = e^α / (e^α + W), the weight of <bos>,

            ∂/∂α[v] = π[v] s (1 − s) Σ_i (q − P)[i] (β − ξ W[·] / W)[i],
            ∂/∂β    = Σ_v π[v] s (q − P).

        Args:
            alpha: sink logits of the M tokens.
            beta: value of <bos>.
        """
        alpha, beta = np.asarray(alpha, np.float64), np.asarray(beta, np.float64)
        P, pi = self.transitions, self.weights
        if alpha.shape != pi.shape or beta.shape != P.shape[1:]:
            raise ValueError(
                f"alpha and beta must have shapes {pi.shape} and {P.shape[1:]}, got {alpha.shape} and {beta.shape}"
            )
        # The logistic function of α − log W, by a form that overflows nowhere.
        share = (1 + np.tanh((alpha - np.log(self.counted)[:, None]) / 2)) / 2
        mean_noise = self.noise / self.counted[:, None]
        added = share[..., None] * beta + (1 - share[..., None]) * mean_noise[:, None]
        # log Σ P e^m, the normaliser of q, with impossible successors left out.
        top = np.max(np.where(P > 0, added, -np.inf), -1, keepdims=True)
        tilted = P * np.exp(added - top)
        total = tilted.sum(-1, keepdims=True)
        excess = (np.log(total) + top)[..., 0] - np.sum(P * added, -1)
        difference = tilted / total - P
        pull = np.sum(difference * (beta - mean_noise[:, None]), -1)
        contexts = len(self.noise)
        return Loss(
            value=float(np.sum(pi * excess) / contexts),
            alpha=np.sum(pi * share * (1 - share) * pull, 0) / contexts,
            beta=np.einsum("rm,rmv->v", pi * share, difference) / contexts,
        )

    def flow(
        self,
        times: Float[ArrayLike, " K"],
        alpha: Float[ArrayLike, "..."] = 0.0,
        beta: Float[ArrayLike, "..."] = 0.0,
        *,
        learn_alpha: bool = True,
        learn_beta: bool = True,
        accuracy: float = 1e-8,
    ) -> Flow:
        """Gradient flow from time 0: dα/dt = −∂loss/∂α and dβ/dt = −∂loss/∂β, by an implicit solver.

        Args:
            times: when to look, rising, from 0 on.
            alpha, beta: where to start; one number stands for all.
            learn_alpha, learn_beta: what flows; the other stays where it starts.
            accuracy: of a step, relative and absolute.

        Raises:
            ValueError: times that do not rise or are negative.
            RuntimeError: the solver gave up.
        """
        times = np.asarray(times, np.float64)
        if times.ndim != 1 or len(times) < 1 or times[0] < 0 or np.any(np.diff(times) <= 0):
            raise ValueError("times must be a list of numbers that rise, the first at least 0")
        require("scipy", extra="chapters")
        from scipy.integrate import solve_ivp

        M, V = self.transitions.shape
        start = np.concatenate([np.broadcast_to(np.asarray(alpha, np.float64), M), np.broadcast_to(beta, V)])

        def slope(_, state):
            loss = self.loss(state[:M], state[M:])
            return -np.concatenate([loss.alpha * learn_alpha, loss.beta * learn_beta])

        if times[-1] == 0:
            states = start[None]
        else:
            solved = solve_ivp(slope, (0, times[-1]), start, "LSODA", t_eval=times, rtol=accuracy, atol=accuracy)
            if not solved.success:
                raise RuntimeError(f"the flow could not be followed to time {times[-1]:g}: {solved.message}")
            states = solved.y.T
        alphas, betas = states[:, :M], states[:, M:]
        return Flow(times, alphas, betas, np.array([self.loss(a, b).value for a, b in zip(alphas, betas)]))


def reduced_model(
    transitions: Float[ArrayLike, "M V"],
    weights: Float[ArrayLike, " M"],
    counts: Float[ArrayLike, "*R V"],
    scales: Float[ArrayLike, "..."] = 1.0,
) -> ReducedModel:
    """The model on a chain, in one context or the mean over several.

    Args:
        transitions: P(· | v) of tokens that are no triggers; rows add up to 1.
        weights: how often each is the last token; of any scale.
        counts: W[i], how often each character stands in the context, [V], or in each of R contexts, [R, V].
        scales: ξ, sizes of the characters' values; one number for all, or [V].

    Raises:
        ValueError: rows that do not add up to 1, negative numbers, an empty context, shapes that do not match.
    """
    P, pi = np.asarray(transitions, np.float64), np.asarray(weights, np.float64)
    W, xi = np.atleast_2d(np.asarray(counts, np.float64)), np.asarray(scales, np.float64)
    if P.ndim != 2 or pi.shape != P.shape[:1] or W.shape[1:] != P.shape[1:] or xi.shape not in ((), P.shape[1:]):
        raise ValueError(
            "transitions [M, V], weights [M], counts [V] or [R, V] and scales (one number or [V]) must match, got "
            f"{P.shape}, {pi.shape}, {np.shape(counts)}, {xi.shape}"
        )
    for name, array in {"transitions": P, "weights": pi, "counts": W, "scales": xi}.items():
        if not np.all(np.isfinite(array) & (array >= 0)):
            raise ValueError(f"{name} must be finite and not negative")
    if np.abs(P.sum(1) - 1).max() > 1e-6:
        raise ValueError(f"transitions: rows must add up to 1, and one adds up to {P.sum(1).max():.4g}")
    if not np.all(W.sum(1) > 0) or not pi.sum() > 0:
        raise ValueError("counts of a context and weights must not all be 0")
    return ReducedModel(P / P.sum(1, keepdims=True), pi / pi.sum(), xi * W, W.sum(1))
