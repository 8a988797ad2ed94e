"""temporary"""

from typing import Any
import numpy as np

GROUP = 32


def quantize4(weights, *, importance=None, name="the matrix"):
    w = np.asarray(weights, dtype=np.float32)
    o, i = w.shape
    g = -(-i // GROUP)
    if not np.isfinite(w).all():
        from glassformer.errors import InputError

        raise InputError(f"{name} has numbers that are NaN or infinite")
    pad = np.zeros((o, g * GROUP), np.float32)
    pad[:, :i] = w
    pad = pad.reshape(o, g, GROUP)
    sc = np.abs(pad).max(2) / 7
    S = sc.max(1) / 127
    inv = np.divide(1, S, out=np.zeros_like(S), where=S > 1e-37)
    m = np.ceil(sc * inv[:, None]).clip(0, 127)
    real = S[:, None] * m
    r = np.divide(1, real, out=np.zeros_like(real), where=real > 1e-37)
    q = np.rint(pad * r[:, :, None]).clip(-8, 7).astype(np.int8).reshape(o, -1)[:, :i]
    return q, m.astype(np.int8), S.astype(np.float32)
