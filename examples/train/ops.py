"""The steps of the forward and backward pass as functions of tensors: Triton kernels on a GPU, numpy (arith.py) on a CPU, the same
bits for the forward ones. `a` are int8 rows, `acc` int32 sums, `x` the bf16 residual stream; N rows, d columns."""
import torch

import arith

try:
    import kernels
except ImportError:  # no Triton on this machine: CPU only
    kernels = None

EXACT = dict(enable_fp_fusion=False)


def numpy(t):
    return t.float().numpy() if t.dtype == torch.bfloat16 else t.numpy()


def power(n):
    """The next power of two: of what Triton has tensors."""
    return 1 << (n - 1).bit_length()


def int_mm(a, w):
    """int8 [N, K] times int8 [M, K] -> int32 [N, M], exact."""
    if a.is_cuda:
        return torch._int_mm(a, w.t())
    wide = torch.float32 if a.shape[1] * 128 * 127 < 2 ** 24 else torch.float64  # exact either way
    return (a.to(wide) @ w.to(wide).t()).to(torch.int32)


def outer(dy, a):
    """Gradient of a weight [M, K] from bf16 dy [N, M] and a [N, K] (integers), in float32."""
    if dy.is_cuda:
        return torch.mm(dy.t(), a.to(torch.bfloat16), out_dtype=torch.float32)
    return dy.float().t() @ a.float()


def embed(weight, e, tokens):
    return (weight[tokens].float() * e[tokens, None]).bfloat16()


def add_norm(x, acc, s, shift, c, eps):
    """x + acc * s as bf16 (x itself if acc is None; acc + shift if there is a shift), and its norm as int8."""
    n, d = x.shape
    if x.is_cuda:
        y, a = x if acc is None else torch.empty_like(x), torch.empty(n, d, dtype=torch.int8, device=x.device)
        rows = 4 if n % 4 == 0 else 1
        if d in (256, 512):
            kernels.add_norm[(n // rows,)](x, acc, s, shift, c, y, a, eps, d, rows, acc is not None, shift is not None, **EXACT)
        else:
            kernels.add_norm_wide[(n,)](x, acc, s, shift, c, y, a, eps, d, acc is not None, shift is not None, num_warps=2, **EXACT)
        return y, a
    v = numpy(x)
    if acc is not None:
        acc = acc if shift is None else acc + shift
        v = arith.bf16(arith.fma(numpy(acc).astype("f4"), numpy(s), v))
    a = arith.quantise(v, arith.norm_multiplier(v, numpy(c), eps))
    return torch.from_numpy(v).bfloat16(), torch.from_numpy(a).to(torch.int8)


def add_norm_backward(da, x, g, c, eps):
    n, d = x.shape
    if x.is_cuda:
        out, rows = torch.empty_like(x), 4 if n % 4 == 0 and d <= 512 else 1
        kernels.add_norm_backward[(n // rows,)](da, x, g, c, out, eps, d, power(d), rows)
        return out
    x = x.float()
    r = (x.square().mean(1, keepdim=True) + eps).rsqrt()
    dn = torch.where((x * r * c).abs() < 127, da.float(), 0.0)
    return (g.float() + r * (dn - x * r * (dn * x * r).mean(1, keepdim=True))).to(g.dtype)


class Rope:
    """The cos and sin tables of one frequency list, [context, head_dim / 2]."""

    def __init__(self, frequencies, context, device):
        self.cos, self.sin = (torch.from_numpy(t.astype("f4")).to(device) for t in arith.cos_sin(range(context), frequencies))


def project(acc, s, c, rope, positions, heads, dtype=torch.bfloat16):
    """acc [N, heads * head_dim] -> bytes as bf16 integers (or `dtype`); rope None: no rotation. acc may be a slice of columns."""
    n, width = acc.shape
    half = width // heads // 2
    if acc.is_cuda:
        out, rows = torch.empty(n, width, dtype=dtype, device=acc.device), max(1, 1024 // power(heads * half))
        kernels.project[(-(-n // rows),)](acc, s, c, rope and rope.cos, rope and rope.sin, positions, out, n, acc.stride(0), half, heads, power(heads * half), rows, rope is not None, **EXACT)
        return out
    y = (numpy(acc).astype("f4") * numpy(s)).reshape(n, heads, 2 * half)
    if rope:
        y = arith.rotate(y, numpy(rope.cos[positions]), numpy(rope.sin[positions]))
    return torch.from_numpy(arith.quantise(y.reshape(n, width), numpy(c))).to(dtype)


def before_rounding(acc, s, c, rope, positions, heads):
    """What project() rounds, near enough: for the clips' gradients."""
    y = (acc.float() * s).view(len(acc), heads, -1)
    if rope:
        y = rotate(y, rope.cos[positions], rope.sin[positions])
    return y.flatten(1) * c


def rotate(y, cos, sin):
    (a, b), cos, sin = y.chunk(2, -1), cos[:, None], sin[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def project_backward(dy, y, gain, rope, positions, heads, out):
    """Gradient of the product's output into `out` (may be a slice of columns), from dy of the bytes y."""
    n, width = y.shape
    half = width // heads // 2
    if y.is_cuda:
        rows = max(1, 1024 // power(heads * half))
        kernels.project_backward[(-(-n // rows),)](dy, y, gain, rope and rope.cos, rope and rope.sin, positions, out, n, out.stride(0), half, heads, power(heads * half), rows, rope is not None)
        return out
    d = torch.where(y.abs() < 127, dy.float() * gain, 0.0).view(n, heads, -1)
    if rope:
        d = rotate(d, rope.cos[positions], -rope.sin[positions])
    return out.copy_(d.flatten(1))


def up(acc, alpha):
    """u (uint8) and relu^2 as int8, shifted by 128."""
    n, f = acc.shape
    if acc.is_cuda:
        u, h = (torch.empty(n, f, dtype=t, device=acc.device) for t in (torch.uint8, torch.int8))
        kernels.up[(-(-n * f // 2048),)](acc, alpha, u, h, n * f, f, 2048, **EXACT)
        return u, h
    u = arith.up_byte(numpy(acc), numpy(alpha))
    return torch.from_numpy(u).to(torch.uint8), torch.from_numpy(arith.square_byte(u) - 128).to(torch.int8)


def up_backward(dr2, u, mid):
    """Gradient of the up projection's output, and relu^2 as bf16 integers 0 ... 255."""
    if u.is_cuda:
        dy, h = torch.empty_like(dr2), torch.empty_like(u, dtype=torch.bfloat16)
        kernels.up_backward[(u.numel() // 2048,)](dr2, u, mid, dy, h, 2048)
        return dy, h
    v = u.float()
    return torch.where(v < 255, dr2 * v * (2 * mid / 255), 0.0).to(dr2.dtype), torch.round(v * v / 255).bfloat16()


def cross_entropy(acc, scale, targets, weights, norm, grad):
    """Loss of each row of logits acc * scale, and (if grad) the gradient of the logits of sum(weights * norm * loss), bf16."""
    n, v = acc.shape
    if acc.is_cuda:
        loss = torch.empty(n, device=acc.device)
        dl = torch.empty(n, v, dtype=torch.bfloat16, device=acc.device) if grad else loss
        kernels.cross_entropy[(n,)](acc, scale, targets, weights, loss, dl, norm, v, grad, num_warps=8)
        return loss, dl
    logits = acc.float() * scale
    loss = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    if not grad:
        return loss, None
    dl = torch.softmax(logits, 1)
    dl[torch.arange(n), targets] -= 1
    return loss, (dl * (weights * norm)[:, None]).bfloat16()
