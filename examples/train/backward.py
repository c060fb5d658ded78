"""The backward pass of model.py, step for step in reverse. Products in bf16 over the dequantised operands. `G` of a matrix is the
gradient of its effective (scaled) weight; finish() turns it into those of the master and of the virtual scalar. Clips get theirs from
every CLIP_ROWS-th row: sums over so many elements that a sample does."""
import torch

import attention
import model
import ops

CLIP_ROWS = 64


def lsq(d, t):
    """Gradient of log(clip) by element: d = gradient of the byte, t = what was rounded to it, before rounding."""
    inside = t.abs() < 127
    return d.float() * (t.clamp(-127, 127).round() - torch.where(inside, t, 0.0))


class Gradients:
    """Sums over the micro-batches of a step. Start a new one for each step's Weights."""

    def __init__(self, w, rows=CLIP_ROWS, first_row=0):
        self.w, self.rows, self.first_row = w, rows, first_row
        self.G = {name: torch.zeros(m.weight.shape, device=m.weight.device) for name, m in w.matrices.items()}
        self.head, self.table = (torch.zeros(w.embed.weight.shape, device=w.embed.weight.device) for _ in range(2))
        self.clip = {name: torch.zeros_like(c) for name, c in w.clips.items()}
        self.real = {name: m.real() for name, m in w.matrices.items()}
        self.real_head = (w.embed.weight * (w.embed.scale * w.embed.out_scalar)[:, None]).bfloat16()
        self.real_kv = torch.cat([self.real["k"], self.real["v"]], 1)
        self.loss = torch.zeros((), device=w.embed.weight.device)
        self.head_loss = torch.zeros_like(self.loss)
        if w.classifier:
            self.classifier = torch.zeros(w.classifier.weight.shape, device=w.embed.weight.device)
            self.bias = torch.zeros_like(w.bias)
            self.real_classifier = w.classifier.weight * w.classifier.product.float()[:, None]

    def run(self, tokens, positions, targets, weights, norm, shape, exact, marks=None, head_norm=0.0):
        """Forward and backward of one micro-batch [N]; adds the gradients of sum(weights * norm * loss), and of the classifier's loss of
        `marks` (marks.py) times head_norm."""
        tape = []
        kv = model.Training(shape, exact)
        x, a = model.forward(self.w, tokens, positions, kv, tape)
        split = self.w.split
        self.sub = slice(self.first_row, None, self.rows)
        self.own_sub = split.sampled(self.first_row, self.rows, len(tokens))  # the same rows, of those that this process has
        self.scale = self.rows  # each sampled row stands for so many
        g = self.backward_head(x, a, *(t if t is None else split.own(t) for t in (targets, weights)), norm, split.own_marks(marks, len(tokens)), head_norm)
        del x, a
        dkv = {}
        for i in reversed(range(len(tape))):
            t = tape.pop()
            g = self.backward_ffn(i, t, g)
            g = self.backward_attention(i, t, g, positions, kv, dkv)
        self.table.index_add_(0, split.own(tokens), g.float())

    def norm(self, da, x, g, c, weight_clip, i):
        """Through a norm of x; adds the clip's gradient."""
        clip, sub = self.w.clips[weight_clip], self.own_sub
        n = x[sub].float()
        n = n * (n.square().mean(1, keepdim=True) + self.w.cfg.norm_eps).rsqrt()
        self.clip[weight_clip][i] += lsq(da[sub], n * c[i]).sum() * (clip[i] / 127 * self.scale)
        return ops.add_norm_backward(da, x, g, c[i:i + 1], self.w.cfg.norm_eps)

    def backward_classifier(self, a, marks, norm, da):
        """Adds to da the gradient of the classifier's inputs at the marked rows."""
        w, rows = self.w, a[marks.rows]
        loss, ds = marks.loss(model.scores(w, rows), norm)
        self.head_loss += loss
        self.classifier += (ds.T @ rows.float()) * (w.clips["final_in"] / 127)
        self.bias += ds.sum(0)
        da.index_add_(0, marks.rows, (ds @ self.real_classifier).to(da.dtype))

    def backward_head(self, x, a, targets, weights, norm, marks, head_norm):
        w, step = self.w, model.HEAD_ROWS
        da = torch.empty_like(x)
        for i in range(0, len(a), step):
            rows = slice(i, i + step)
            loss, dl = ops.cross_entropy(ops.int_mm(a[rows], w.embed.weight), w.const.sl, targets[rows], weights[rows], norm, True)
            self.loss += (loss * weights[rows]).sum() * norm
            self.head += ops.outer(dl, a[rows]) * (w.clips["final_in"] / 127)
            torch.mm(dl, self.real_head, out=da[rows])
        if w.classifier and marks:
            self.backward_classifier(a, marks, head_norm, da)
        return self.norm(da, x, torch.zeros_like(x), w.const.final_in, "final_in", 0)

    def backward_ffn(self, i, t, g):
        w, c = self.w, self.w.const
        mid, sub = w.clips["mid"][i:i + 1], self.sub
        every = w.split.whole(g)
        dr2 = every @ self.real["down"][i]
        y = ops.int_mm(t.a2[sub], w.matrices["up"].weight[i]).float() * c.alpha[i]  # what was rounded to u
        u = t.u[sub].float()
        by_element = u * (u - torch.where((y > 0) & (y < 255), y, 0.0)) + 255 * ((u * u / 255).round() - u * u / 255)  # of u, of its square
        self.clip["mid"][i] += (dr2[sub].float() * by_element).sum() * (2 * mid[0] * mid[0] / 65025 * self.scale)
        dy, h = ops.up_backward(dr2, t.u, mid)
        del dr2
        self.G["down"][i] += ops.outer(every, h) * (mid * mid / 255)
        self.G["up"][i] += ops.outer(dy, t.a2) * (w.clips["ffn_in"][i] / 127)
        return self.norm(w.split.own_sum(dy @ self.real["up"][i]), t.x1, g, c.ffn_in, "ffn_in", i)

    def backward_attention(self, i, t, g, positions, kv, dkv):
        w, c, cfg, sub, split = self.w, self.w.const, self.w.cfg, self.sub, self.w.split
        layer, clips, every = w.layer(i), w.clips, split.whole(g)
        slot, hd, heads, n = layer.slot, cfg.head_dim, w.heads, len(every)
        q, o, lse = t.attention
        # A = O * v_clip / out_clip as bytes; O is in units of v's bytes
        da = every @ self.real["o"][i]
        gain = clips["out_clip"][i] / 127 * c.co[i]
        self.clip["out_clip"][i] += lsq(da[sub], o.view(n, -1)[sub].float() * c.co[i]).sum() * (clips["out_clip"][i] / 127 * self.scale)
        self.G["o"][i] += ops.outer(every, t.a1) * (clips["out_clip"][i] / 127)
        do = ops.project_backward(da, t.a1, gain, None, positions, heads, da)
        dq, dk, dv = attention.backward(do.view(o.shape), q, *kv.kv[slot], o, lse, c.z[i] * attention.LN2, layer.window)
        dkv[slot] = [new.float() + old for new, old in zip((dk, dv), dkv.get(slot, (0, 0)))]
        del da, do, o, lse
        # q = bytes * q_clip / (127 k_clip), by channel
        before = ops.before_rounding(ops.int_mm(t.a0[sub], w.matrices["q"].weight[i]), c.sq[i], c.cq[i], layer.rope, positions[sub], heads)
        by_channel = lsq(dq.reshape(n, -1)[sub], before).sum(0) * self.scale
        self.clip["q_clip"][i] += by_channel.sum()
        self.clip["k_clip"][slot] -= by_channel.view(heads, hd).sum(0)
        dq = ops.project_backward(dq.reshape(n, -1), q.view(n, -1), c.cq[i], layer.rope, positions, heads, torch.empty(n, heads * hd, dtype=g.dtype, device=g.device))
        self.G["q"][i] += ops.outer(dq, t.a0) * (clips["attn_in"][i] / 127)
        da = split.own_sum(dq @ self.real["q"][i])
        if layer.owner:
            (dk, dv), (k, v), sub = dkv.pop(slot), kv.kv[slot], self.own_sub
            dk, dv = (split.own_sum(z.reshape(n, -1)) for z in (dk, dv))
            k, v, a0, positions = (split.own(z) for z in (k.reshape(n, -1), v.reshape(n, -1), t.a0, positions))
            acc = ops.int_mm(a0[sub], w.kv[slot])
            before = ops.before_rounding(acc[:, :hd], c.sk[slot], c.ck[slot], layer.rope, positions[sub], 1)
            self.clip["k_clip"][slot] += lsq(dk[sub], before).sum(0) * self.scale
            before = ops.before_rounding(acc[:, hd:], c.sv[slot], c.cv[slot], None, positions[sub], 1)
            self.clip["v_clip"][slot] += lsq(dv[sub], before).sum(0) * self.scale
            both = torch.empty(len(a0), 2 * hd, dtype=g.dtype, device=g.device)
            ops.project_backward(dk, k, c.ck[slot], layer.rope, positions, 1, both[:, :hd])
            ops.project_backward(dv, v, c.cv[slot], None, positions, 1, both[:, hd:])
            G = ops.outer(both, a0) * (clips["attn_in"][i] / 127)
            self.G["k"][slot] += G[:hd]
            self.G["v"][slot] += G[hd:]
            da.addmm_(both, self.real_kv[slot])
        return self.norm(da, t.x0, g, c.attn_in, "attn_in", i)

    def finish(self):
        """Gradients by the names of new_masters(): of this process's part, if w.split divides the pass; their sum is meant then."""
        w, out = self.w, dict(self.clip)
        for name, G in self.G.items():
            m = w.matrices[name]
            out[name] = G * m.scalar[:, None, None]
            out[name + "_scalar"] = (out[name] * m.weight * m.scale[..., None]).sum((1, 2))
        real = w.embed.weight * w.embed.scale[:, None]
        head, table = self.head * w.embed.out_scalar, self.table * w.embed.in_scalar
        if w.classifier:
            m = w.classifier
            out["classifier"] = self.classifier * m.scalar
            out["classifier_scalar"] = (out["classifier"] * m.weight * m.scale[:, None]).sum()[None]
            out["classifier_bias"] = self.bias
        out["embed"], out["out_scalar"], out["in_scalar"] = head + table, (head * real).sum()[None], (table * real).sum()[None]
        return w.split.expand(out, w.cfg)
