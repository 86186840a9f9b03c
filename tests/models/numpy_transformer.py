"""A Transformer's forward pass in float64 NumPy, one sequence, one head and one query at a time: the oracle."""

from __future__ import annotations

import math

import numpy as np


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu_exact(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def silu(x):
    return x / (1 + np.exp(-x))


ACTIVATIONS = {
    "gelu": gelu_tanh,
    "gelu_exact": gelu_exact,
    "silu": silu,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
}


def norm(x, p, kind, c):
    if kind == "none":
        return x
    out = np.empty_like(x)
    for i, row in enumerate(x):
        centred = row - row.mean() if kind == "layer" else row
        out[i] = centred / math.sqrt((centred @ centred) / len(row) + c.norm_epsilon)
    out = out * ((1 + p["gain"]) if c.norm_from_one else p["gain"])
    return out + p["bias"] if "bias" in p else out


def linear(x, p):
    """[T, D] through a kernel [D, ...]."""
    y = np.tensordot(x, p["kernel"], 1)
    return y + p["bias"] if "bias" in p else y


def turned(vector, t, base):
    """RoPE with complex numbers."""
    half = len(vector) // 2
    wave = (vector[:half] + 1j * vector[half:]) * np.exp(1j * t / base ** (np.arange(half) / half))
    return np.concatenate([wave.real, wave.imag])


def slopes(heads):
    power = 2 ** math.floor(math.log2(heads))
    first = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return first + [2 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * power, 2)][: heads - power]


def attention(x, p, c, layer, seen, at, beta_of):
    query, key, value = (linear(x, p[name]) for name in ("query", "key", "value"))
    T, (N, H), K = len(x), query.shape[1:], key.shape[1]
    window = c.windows[layer % len(c.windows)]
    base = c.local_rotary_base if window is not None and c.local_rotary_base is not None else c.rotary_base
    output = np.zeros((T, N, H))
    report = {"entropy": np.zeros((T, N)), "beta": np.ones((T, N)), "spread": np.zeros((T, N))}
    for n in range(N):
        k = n // (N // K)
        qs, ks, vs = query[:, n], key[:, k], value[:, k]
        if c.qk_norm != "none":
            qs, ks = norm(qs, p["query_norm"], c.qk_norm, c), norm(ks, p["key_norm"], c.qk_norm, c)
        if c.positions == "rotary":
            qs, ks = (np.array([turned(row, t, base) for t, row in zip(at, rows)]) for rows in (qs, ks))
        for t in range(T):
            z, who = [], []
            for s in range(T):
                if not seen[s] or (c.causal and s > t) or (window is not None and abs(t - s) >= window):
                    continue
                logit = (qs[t] @ ks[s]) * (1 / math.sqrt(H) if c.scale is None else c.scale)
                if c.attention_soft_cap is not None:
                    logit = c.attention_soft_cap * math.tanh(logit / c.attention_soft_cap)
                if c.positions == "alibi":
                    logit -= slopes(N)[n] * abs(at[t] - at[s])
                z.append(logit)
                who.append(s)
            if not z:
                continue
            z = np.array(z)
            w = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
            entropy = -sum(v * math.log(v) for v in w if v > 0)
            beta = beta_of(entropy)
            w = np.exp(beta * (z - z.max()))
            output[t, n] = (w / w.sum()) @ vs[who]
            report["entropy"][t, n], report["beta"][t, n], report["spread"][t, n] = entropy, beta, np.ptp(z)
    y = np.tensordot(output, p["out"]["kernel"], 2)
    return (y + p["out"]["bias"] if "bias" in p["out"] else y), report


def mlp(x, p, c):
    act = ACTIVATIONS[c.activation]
    hidden = act(linear(x, p["up"])) if c.mlp == "plain" else act(linear(x, p["gate"])) * linear(x, p["up"])
    return linear(hidden, p["down"])


def forward(p, c, tokens, seen=None, at=None, beta_of=lambda entropy: 1.0):
    """Logits [T, vocabulary], hidden states [L + 1, T, D], and each layer's report, of one sequence."""
    at = np.arange(len(tokens)) if at is None else np.asarray(at)
    seen = np.ones(len(tokens), bool) if seen is None else seen
    x = p["embedding"][tokens] * (math.sqrt(c.width) if c.scale_embedding else 1)
    if c.positions == "learned":
        x = x + p["position_embedding"][at]
    if c.positions == "sinusoidal":
        wave = [
            [math.sin(t / 10_000 ** (2 * (i // 2) / c.width) + (i % 2) * math.pi / 2) for i in range(c.width)]
            for t in at
        ]
        x = x + np.array(wave)
    if c.embedding_norm:
        x = norm(x, p.get("embedding_norm", {}), c.norm, c)
    hidden, reports = [x], []
    for layer in range(c.layers):
        b = p["blocks"][layer]

        def place(x, name, b=b):
            return norm(x, b.get(name, {}), c.norm, c)

        read = x if c.norm_place == "post" else place(x, "attention_norm")
        branch, report = attention(read, b["attention"], c, layer, seen, at, beta_of)
        reports.append(report | {"inputs": read})
        if c.norm_place == "both":
            branch = place(branch, "attention_after")
        if c.parallel and c.mlp != "none":
            other = mlp(read, b["mlp"], c)
            branch = branch + (place(other, "mlp_after") if c.norm_place == "both" else other)
        x = x + branch if c.residual else branch
        if c.norm_place == "post":
            x = place(x, "attention_norm")
        if not c.parallel and c.mlp != "none":
            branch = mlp(x if c.norm_place == "post" else place(x, "mlp_norm"), b["mlp"], c)
            if c.norm_place == "both":
                branch = place(branch, "mlp_after")
            x = x + branch if c.residual else branch
            if c.norm_place == "post":
                x = place(x, "mlp_norm")
        hidden.append(x)
    if c.final_norm:
        x = norm(x, p.get("final_norm", {}), c.norm, c)
    logits = x @ p["embedding"].T if c.tied else x @ p["free_read_out"]["kernel"]
    if c.logits_soft_cap is not None:
        logits = c.logits_soft_cap * np.tanh(logits / c.logits_soft_cap)
    return logits, np.array(hidden), reports
