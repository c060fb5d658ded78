"""The arithmetic contract (docs/arithmetic.md) in numpy, read from its text: what the CPU forward of model.py is made of, and what
the Triton kernels are tested against. float32 arrays throughout; integers are kept in float32 where they fit (below 2^24)."""
import math

import numpy as np

F = np.float32
MAGIC = F(12582912.0)  # 1.5 * 2^23: adding it leaves the rounded integer in the low bits
CHUNK = 512


def fma(x, y, z):
    """x * y + z rounded once (numpy has none): the sum is rounded to odd in double, so that the second rounding is harmless."""
    p = np.multiply(x, y, dtype=np.float64)
    c = np.asarray(z, np.float64)
    s = np.asarray(p + c)
    t = s - p
    e = (p - (s - t)) + (c - t)
    bits = s.view(np.int64)
    away = (e > 0) == (s > 0)
    s = np.where((e == 0) | ((bits & 1) == 1), s, (bits + np.where(away, 1, -1)).view(np.float64))
    return s.astype(F)


def bf16(x):
    """float32 rounded to bfloat16, ties to even, kept as float32."""
    bits = np.ascontiguousarray(x, F).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(F)


def quantise(x, c):
    return np.rint(np.clip(x * c, F(-127), F(127)))  # clamp and rint commute: the limits are integers


# ---------------------------------------------------------------- exp2
C1, C2, C3, C4 = (F(float.fromhex(c)) for c in ("0x1.62e12cp-1", "0x1.ec0366p-3", "0x1.c9fbe4p-5", "0x1.3a0562p-7"))


def pow2(n, f):
    y = fma(fma(fma(fma(C4, f, C3), f, C2), f, C1), f, F(1))
    return (y.view(np.int32) + (n.astype(np.int32) << 23)).view(F)


def exp_of(d, z):
    """E(d) of section 5: 2^(d z) for integers d <= 0, in float32."""
    d = np.asarray(d, F)
    n = fma(d, z, MAGIC) - MAGIC
    f = fma(d, z, -n)
    return np.where(n < -126, F(0), pow2(np.maximum(n, F(-126)), f))


# ---------------------------------------------------------------- positions
SIN = [F(float.fromhex(c)) for c in ("0x1.921fb6p+2", "-0x1.4abbcep+5", "0x1.466bc6p+6", "-0x1.32d2ccp+6", "0x1.507834p+5")]
COS = [F(float.fromhex(c)) for c in ("0x1p+0", "-0x1.3bd3ccp+4", "0x1.03c1d8p+6", "-0x1.55c612p+6", "0x1.d9d57ep+5")]


def rope_frequencies(theta, head_dim):
    """uint64 turns per token * 2^64. Any rounding will do: the file carries the integers."""
    return np.array([int(theta ** (-2 * i / head_dim) / (2 * math.pi) * 2.0 ** 64) for i in range(head_dim // 2)], np.uint64)


def cos_sin(positions, frequencies):
    """Two float32 arrays [positions, head_dim / 2]."""
    a = np.multiply.outer(np.asarray(positions, np.uint64), frequencies)  # wraps modulo one turn
    q = (a + np.uint64(1 << 61)) >> np.uint64(62)
    r = (a - (q << np.uint64(62))).view(np.int64)
    t = (r >> 37).astype(F) * F(2.0 ** -27)
    u = t * t
    s, c = np.full_like(u, SIN[4]), np.full_like(u, COS[4])
    for i in (3, 2, 1, 0):
        s, c = fma(s, u, SIN[i]), fma(c, u, COS[i])
    s = t * s
    q = (q & np.uint64(3)).astype(int)
    return np.choose(q, [c, -s, -c, s]), np.choose(q, [s, c, -s, -c])


def rotate(x, cos, sin):
    """x [rows, heads, head_dim], cos and sin [rows, head_dim / 2]."""
    half = x.shape[-1] // 2
    a, b, cos, sin = x[..., :half], x[..., half:], cos[:, None], sin[:, None]
    return np.concatenate([fma(a, cos, -(b * sin)), fma(b, cos, a * sin)], -1)


# ---------------------------------------------------------------- rows
def norm_multiplier(x, c, eps):
    """r * c for each row of x [rows, width]; r = 1/rms."""
    width = x.shape[1]
    p = np.zeros((len(x), 256), F)
    for i in range(0, width, 256):
        part = x[:, i:i + 256]
        p[:, :part.shape[1]] = fma(part, part, p[:, :part.shape[1]])
    w = 128
    while w:
        p = p[:, :w] + p[:, w:2 * w]
        w //= 2
    return F(1) / np.sqrt(p / F(width) + F(eps)) * c


def up_byte(acc, alpha):
    """0 ... 255 from the int32 sums of the up projection."""
    return np.rint(np.clip(acc.astype(F) * alpha + F(-128), F(-128), F(127))) + F(128)


def square_byte(u):
    u = u.astype(np.int32)
    return (2 * u * u + 255) // 510


# ---------------------------------------------------------------- attention
def weight_table(z):
    """p of section 5 for d = 0, -1, -2 ...; the last entry is 0 and stands for all that follow."""
    d = -np.arange(int(18.0 / float(z)) + 2).astype(F)
    p = fma(F(65535), exp_of(d, z), MAGIC) - MAGIC
    p[-1] = 0
    return p


def attention(q, k, v, z, window, first=0):
    """q [rows, D] at positions first ..., k and v [positions, D], integers in float32; window None for global layers.
    Returns Ot [rows, D], Lt [rows], Mt [rows] before the division by Lt."""
    table, rows, z = weight_table(z), len(q), F(z)
    out, total, most = np.zeros(q.shape, F), np.zeros(rows, F), np.full(rows, -np.inf, F)
    for r0 in range(0, rows, 512):
        mine = slice(r0, min(r0 + 512, rows))
        p = first + np.arange(mine.start, mine.stop)[:, None]
        low = 0 if window is None else max(0, p[0, 0] - window + 1)
        for c0 in range(low // CHUNK * CHUNK, p[-1, 0] + 1, CHUNK):
            j = np.arange(c0, min(c0 + CHUNK, len(k)))[None]
            seen = (j <= p) if window is None else (j <= p) & (j > p - window)
            some = seen.any(1)  # rows with a visible key in this chunk
            score = np.where(seen, q[mine] @ k[j[0]].T, -np.inf)  # exact: below 2^24
            m = np.where(some, score.max(1), 0).astype(F)
            d = np.minimum(m[:, None] - score, len(table) - 1)
            weight = table[d.astype(np.int32)].astype(np.float64)
            o, l = (weight @ v[j[0]].astype(np.float64)).astype(F), weight.sum(1).astype(F)  # exact in double, rounded once
            mt, lt, ot = most[mine], total[mine], out[mine]
            fresh, later = some & np.isinf(mt), some & ~np.isinf(mt)
            up = later & (mt <= m)  # the new chunk's maximum stands
            a = exp_of(np.where(later, np.minimum(mt, m) - np.maximum(mt, m), 0), z)
            total[mine] = np.where(fresh, l, np.where(up, fma(lt, a, l), np.where(later, fma(l, a, lt), lt)))
            a, up, keep = a[:, None], up[:, None], later[:, None]
            out[mine] = np.where(fresh[:, None], o, np.where(up, fma(ot, a, o), np.where(keep, fma(o, a, ot), ot)))
            most[mine] = np.where(fresh | up[:, 0], m, mt)
    return out, total, most
