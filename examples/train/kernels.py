"""Triton kernels of the trainer: one pass over memory for each step between two matrix products. Those of the forward pass do the
contract's arithmetic to the bit (explicit fma, division and square root rounded to nearest, no contraction: launch them through
ops.py, which passes enable_fp_fusion=False); those of the backward pass need only be close. ops.py has the same in torch or numpy."""
import triton
import triton.language as tl


@triton.jit
def rint(x):  # ties to even, |x| < 2^22
    return (x + 12582912.0) - 12582912.0


@triton.jit
def to_byte(x):
    return rint(tl.minimum(tl.maximum(x, -127.0), 127.0))


@triton.jit
def halve(p, R: tl.constexpr, W: tl.constexpr):  # p[j] + p[j + W]; a sum of two is exact in any order
    return tl.sum(tl.reshape(p, (R, 2, W)), 1)


@triton.jit
def add_norm(X, ACC, S, SHIFT, C, Y, A, eps, D: tl.constexpr, R: tl.constexpr, ADD: tl.constexpr, SHIFTED: tl.constexpr):
    """y = bf16(fma(acc, s, x)), a = norm(y, c), R rows at a time. D is 256 or 512, so that the contract's 256 partial sums are one more halving:
    squares of bf16 are exact, hence fma(x, x, p) = p + x * x."""
    i = tl.arange(0, D)[None, :]
    at = (tl.program_id(0) * R + tl.arange(0, R)).to(tl.int64)[:, None] * D + i
    x = tl.load(X + at).to(tl.float32)
    if ADD:
        acc = tl.load(ACC + at)
        if SHIFTED:
            acc += tl.load(SHIFT + i)
        y = tl.fma(acc.to(tl.float32), tl.load(S + i), x).to(tl.bfloat16)
        tl.store(Y + at, y)
        x = y.to(tl.float32)
    p = x * x
    if D == 512:
        p = halve(p, R, 256)
    p = halve(p, R, 128)
    p = halve(p, R, 64)
    p = halve(p, R, 32)
    p = halve(p, R, 16)
    p = halve(p, R, 8)
    p = halve(p, R, 4)
    p = halve(p, R, 2)
    p = halve(p, R, 1)
    m = tl.div_rn(1.0, tl.sqrt_rn(tl.div_rn(p, tl.full((R, 1), D, tl.float32)) + eps)) * tl.load(C)
    tl.store(A + at, to_byte(x * m).to(tl.int8))


@triton.jit
def add_norm_wide(X, ACC, S, SHIFT, C, Y, A, eps, D: tl.constexpr, ADD: tl.constexpr, SHIFTED: tl.constexpr):
    """add_norm() for a row of any width, 256 columns at a time: each of the contract's partial sums takes its columns in order. Columns
    past the width are zeros, which change no sum."""
    row = tl.program_id(0).to(tl.int64) * D
    p = tl.zeros((1, 256), tl.float32)
    for first in tl.static_range(0, D, 256):
        i = first + tl.arange(0, 256)[None, :]
        ok = i < D
        x = tl.load(X + row + i, ok, 0).to(tl.float32)
        if ADD:
            acc = tl.load(ACC + row + i, ok, 0)
            if SHIFTED:
                acc += tl.load(SHIFT + i, ok, 0)
            y = tl.fma(acc.to(tl.float32), tl.load(S + i, ok, 0), x).to(tl.bfloat16)
            tl.store(Y + row + i, y, ok)
            x = y.to(tl.float32)
        p = tl.fma(x, x, p)
    tl.debug_barrier()
    p = halve(p, 1, 128)
    p = halve(p, 1, 64)
    p = halve(p, 1, 32)
    p = halve(p, 1, 16)
    p = halve(p, 1, 8)
    p = halve(p, 1, 4)
    p = halve(p, 1, 2)
    p = halve(p, 1, 1)
    m = tl.div_rn(1.0, tl.sqrt_rn(tl.div_rn(p, tl.full((1, 1), D, tl.float32)) + eps)) * tl.load(C)
    for first in tl.static_range(0, D, 256):
        i = first + tl.arange(0, 256)[None, :]
        ok = i < D
        x = tl.load(Y + row + i, ok, 0).to(tl.float32)  # X itself where nothing is added
        tl.store(A + row + i, to_byte(x * m).to(tl.int8), ok)


@triton.jit
def add_norm_backward(DA, X, G, C, OUT, eps, D: tl.constexpr, B: tl.constexpr, R: tl.constexpr):
    """out = g + gradient of the norm, where da is the gradient of the normed row; saturated elements get none. B is D or the next power of two."""
    i = tl.arange(0, B)[None, :]
    at = (tl.program_id(0) * R + tl.arange(0, R)).to(tl.int64)[:, None] * D + i
    ok = i < D
    x = tl.load(X + at, ok, 0).to(tl.float32)
    r = tl.rsqrt(tl.sum(x * x, 1) / D + eps)[:, None]
    n = x * r
    dn = tl.where(tl.abs(n) * tl.load(C) < 127.0, tl.load(DA + at, ok, 0).to(tl.float32), 0.0)
    dx = r * (dn - n * (tl.sum(dn * n, 1) / D)[:, None])
    tl.store(OUT + at, (tl.load(G + at, ok, 0).to(tl.float32) + dx).to(tl.bfloat16), ok)


@triton.jit
def project(ACC, S, C, COS, SIN, POS, OUT, rows, stride, HALF: tl.constexpr, HEADS: tl.constexpr, B: tl.constexpr, R: tl.constexpr, ROTATE: tl.constexpr):
    """Heads of a product to bytes (kept as bf16 integers): acc * s, rotated by position, times c, rounded and clamped. B is the number of
    pairs of a row, or the next power of two."""
    row = (tl.program_id(0) * R + tl.arange(0, R)).to(tl.int64)[:, None]
    pair = tl.arange(0, B)[None, :]
    i = pair % HALF
    low = (pair // HALF) * (2 * HALF) + i
    some = pair < HEADS * HALF
    ok = (row < rows) & some
    a = tl.load(ACC + row * stride + low, ok, 0).to(tl.float32) * tl.load(S + low, some, 0)
    b = tl.load(ACC + row * stride + low + HALF, ok, 0).to(tl.float32) * tl.load(S + low + HALF, some, 0)
    if ROTATE:
        pos = tl.load(POS + row, row < rows, 0)
        cos = tl.load(COS + pos * HALF + i)
        sin = tl.load(SIN + pos * HALF + i)
        y = tl.fma(a, cos, -(b * sin))
        b = tl.fma(b, cos, a * sin)
        a = y
    at = row * (2 * HALF * HEADS) + low
    tl.store(OUT + at, to_byte(a * tl.load(C + low, some, 0)).to(OUT.dtype.element_ty), ok)
    tl.store(OUT + at + HALF, to_byte(b * tl.load(C + low + HALF, some, 0)).to(OUT.dtype.element_ty), ok)


@triton.jit
def project_backward(DY, Y, GAIN, COS, SIN, POS, OUT, rows, stride, HALF: tl.constexpr, HEADS: tl.constexpr, B: tl.constexpr, R: tl.constexpr, ROTATE: tl.constexpr):
    """dy is the gradient of the bytes, gain = c; writes the gradient of the product's output."""
    row = (tl.program_id(0) * R + tl.arange(0, R)).to(tl.int64)[:, None]
    pair = tl.arange(0, B)[None, :]
    i = pair % HALF
    low = (pair // HALF) * (2 * HALF) + i
    at = row * (2 * HALF * HEADS) + low
    some = pair < HEADS * HALF
    ok = (row < rows) & some
    a = tl.load(DY + at, ok, 0).to(tl.float32) * tl.load(GAIN + low, some, 0)
    b = tl.load(DY + at + HALF, ok, 0).to(tl.float32) * tl.load(GAIN + low + HALF, some, 0)
    a = tl.where(tl.abs(tl.load(Y + at, ok, 0).to(tl.float32)) < 127.0, a, 0.0)
    b = tl.where(tl.abs(tl.load(Y + at + HALF, ok, 0).to(tl.float32)) < 127.0, b, 0.0)
    if ROTATE:
        pos = tl.load(POS + row, row < rows, 0)
        cos = tl.load(COS + pos * HALF + i)
        sin = tl.load(SIN + pos * HALF + i)
        y = a * cos + b * sin
        b = b * cos - a * sin
        a = y
    tl.store(OUT + row * stride + low, a.to(OUT.dtype.element_ty), ok)
    tl.store(OUT + row * stride + low + HALF, b.to(OUT.dtype.element_ty), ok)


@triton.jit
def up(ACC, ALPHA, U, H, size, F: tl.constexpr, B: tl.constexpr):
    """u = the contract's byte 0 ... 255, h = rint(u * u / 255) - 128 for the signed product. `size` = rows * F < 2^31."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    ok = at < size
    y = tl.load(ACC + at, ok, 0).to(tl.float32) * tl.load(ALPHA + at % F) + -128.0  # two roundings
    u = rint(tl.minimum(tl.maximum(y, -128.0), 127.0)) + 128.0
    tl.store(U + at, u.to(tl.int32).to(tl.uint8), ok)
    tl.store(H + at, (rint(u * u * 0.003921568859368563) - 128.0).to(tl.int8), ok)  # f32(1/255): no u*u/255 is near a tie


@triton.jit
def up_backward(DR2, U, MID, DY, H, B: tl.constexpr):
    """dr2: gradient of relu(y)^2. Writes the gradient of y and h as bf16 integers 0 ... 255 for the weights' gradient."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    u = tl.load(U + at).to(tl.float32)
    dy = tl.load(DR2 + at).to(tl.float32) * (2.0 * tl.load(MID) / 255.0) * u
    tl.store(DY + at, tl.where(u < 255.0, dy, 0.0).to(tl.bfloat16))
    tl.store(H + at, rint(u * u * 0.003921568859368563).to(tl.bfloat16))


@triton.jit
def cross_entropy(ACC, SCALE, TARGET, WEIGHT, LOSS, DL, norm, V: tl.constexpr, GRAD: tl.constexpr):
    """Loss of each row of logits acc * scale, and the gradient of the logits times weight * norm."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, V)
    logit = tl.load(ACC + row * V + i).to(tl.float32) * tl.load(SCALE + i)
    hit = i == tl.load(TARGET + row)
    most = tl.max(logit, 0)
    e = tl.exp(logit - most)
    total = tl.sum(e, 0)
    tl.store(LOSS + row, tl.log(total) + most - tl.sum(tl.where(hit, logit, 0.0), 0))
    if GRAD:
        d = (e / total - tl.where(hit, 1.0, 0.0)) * (tl.load(WEIGHT + row) * norm)
        tl.store(DL + row * V + i, d.to(tl.bfloat16))


@triton.jit
def pow2(t, f):
    """2^(n + f) for t = n + 12582912: the low bits of t are n, ready to be added to an exponent."""
    y = tl.fma(f, 0.00958316121250391, 0.05590624362230301)
    y = tl.fma(y, f, 0.24024085700511932)
    y = tl.fma(y, f, 0.6931241750717163)
    y = tl.fma(y, f, 1.0)
    return (y.to(tl.int32, bitcast=True) + (t.to(tl.int32, bitcast=True) << 23)).to(tl.float32, bitcast=True)


@triton.jit
def visible(s, j, rows, window, edge, BRANCH: tl.constexpr):
    """Hides scores of keys that a row does not see; BRANCH: only in tiles on an edge."""
    if BRANCH:
        if edge:
            s = tl.where((j[None, :] <= rows[:, None]) & (j[None, :] > rows[:, None] - window), s, -1073741824.0)
    else:
        s = tl.where((j[None, :] <= rows[:, None]) & (j[None, :] > rows[:, None] - window), s, -1073741824.0)
    return s


@triton.jit
def attend(Q, K, V, CO, A, O, LSE, z, floor, T, window, D: tl.constexpr, HEADS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BRANCH: tl.constexpr):
    """Section 5 for BM rows of one head. Operands are integers in bf16 (or wider), so that every product and every sum stays exact
    in float32: scores below 2^20, and p = 256 hi + lo with hi in 0 ... 256, lo in -128 ... 128, summed over 512 keys below 2^24.
    Scores are computed twice, once for the maximum of the chunk. Bound by instruction issue: about 20 per score.
    Q [B, T, HEADS, D], K and V [B, T, D]; T a multiple of BM, BM of BN."""
    first = tl.program_id(0) * BM
    head = tl.program_id(1) % HEADS
    base = (tl.program_id(1) // HEADS).to(tl.int64) * T
    rows = first + tl.arange(0, BM)
    keys = tl.arange(0, BN)
    i = tl.arange(0, D)
    at = (base + rows)[:, None] * (HEADS * D) + head * D + i[None, :]
    q = tl.load(Q + at)
    low = tl.maximum(first - window + 1, 0)
    most = tl.full((BM,), -536870912.0, tl.float32)  # -2^29: nothing seen yet
    total = tl.zeros((BM,), tl.float32)
    out = tl.zeros((BM, D), tl.float32)
    for chunk in range(low // 512 * 512, first + BM, 512):
        start = tl.maximum(chunk, low // BN * BN)
        stop = tl.minimum(chunk + 512, first + BM)
        m = tl.full((BM,), -536870912.0, tl.float32)
        for tile in range(start, stop, BN):
            j = tile + keys
            s = tl.dot(q, tl.load(K + (base + j)[None, :] * D + i[:, None]))
            s = visible(s, j, rows, window, (tile + BN > first + 1) | (tile <= first + BM - 1 - window), BRANCH)
            m = tl.maximum(m, tl.max(s, 1))
        high = tl.zeros((BM, D), tl.float32)
        rest = tl.zeros((BM, D), tl.float32)
        l = tl.zeros((BM,), tl.int32)
        for tile in range(start, stop, BN):
            j = tile + keys
            s = tl.dot(q, tl.load(K + (base + j)[None, :] * D + i[:, None]))
            s = visible(s, j, rows, window, (tile + BN > first + 1) | (tile <= first + BM - 1 - window), BRANCH)
            d = tl.maximum(s - m[:, None], floor)  # floor = -24 / z: p is 0 there, and hidden keys end up there
            t = tl.fma(d, z, 12582912.0)
            f = tl.fma(d, z, -(t - 12582912.0))
            p = tl.fma(pow2(t, f), 65535.0, 12582912.0) - 12582912.0
            hi = tl.fma(p, 0.00390625, 12582912.0) - 12582912.0
            v = tl.load(V + (base + j)[:, None] * D + i[None, :])
            high = tl.dot(hi.to(v.dtype), v, high)
            rest = tl.dot(tl.fma(hi, -256.0, p).to(v.dtype), v, rest)
            l += tl.sum(p, 1).to(tl.int32)  # exact per tile; over 512 keys it may pass 2^24
        new = tl.fma(high, 256.0, rest)
        d = tl.minimum(most, m) - tl.maximum(most, m)
        t = tl.fma(d, z, 12582912.0)
        n = t - 12582912.0
        f = tl.fma(d, z, -n)
        a = tl.where(n < -126.0, 0.0, pow2(t, f))
        up_ = most <= m  # an empty total or an empty chunk is all zeros, so that folding it changes nothing
        total = tl.where(up_, tl.fma(total, a, l.to(tl.float32)), tl.fma(l.to(tl.float32), a, total))
        out = tl.where(up_[:, None], tl.fma(out, a[:, None], new), tl.fma(new, a[:, None], out))
        most = tl.maximum(most, m)
    out = out * tl.div_rn(tl.full((BM,), 1.0, tl.float32), total)[:, None]
    tl.store(O + at, out.to(O.dtype.element_ty))
    tl.store(A + at, to_byte(out * tl.load(CO + head * D + i)[None, :]).to(tl.int8))
    tl.store(LSE + tl.program_id(1) * T + rows, most * z * 0.6931471805599453 + tl.log(total / 65535.0))
