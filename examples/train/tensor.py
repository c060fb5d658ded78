"""Tensor and sequence parallelism inside a host (Shoeybi et al. 2019; Korthikanti et al. 2022). The processes of a group take the same
sequences. Each has some heads and some hidden units of every layer; between two products, in norms, embedding and loss, it has some rows:

    norm of own rows -> all rows as bytes -> q, attention and o of own heads -> sums of own rows -> norm ... up and down likewise

What is gathered in the forward pass are int8 rows, and what is added up are int32 sums, free of order: so the forward pass has the bits
of one process. The backward pass gathers and adds up bf16. Every process has all weights and takes every step of the optimiser, or a part
of both (sharded.py). Gradients are those of a process's part; whoever adds up over all processes, of one group or of several, gets the sum."""
import copy
from types import SimpleNamespace

import torch
import torch.distributed as dist

import model

ROWS, COLUMNS = ("q", "up"), ("o", "down")  # how the matrices are divided: their outputs, their inputs


class Group:
    """The processes with whom this one shares its sequences: `size` neighbours. Made by all processes at once."""

    def __init__(self, size):
        ranks = dist.get_world_size()
        if ranks % size:
            raise ValueError("%d processes are no groups of %d" % (ranks, size))
        groups = [dist.new_group(list(range(first, first + size))) for first in range(0, ranks, size)]
        self.size, self.rank, self.number, self.count = size, dist.get_rank() % size, dist.get_rank() // size, len(groups)
        self.group = groups[self.number]

    def part(self, count):
        """Of so many."""
        return slice(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def own(self, rows):
        return rows[self.part(len(rows))]

    def own_marks(self, found, count):
        if not found:
            return found
        at = self.part(count)
        some = (found.rows >= at.start) & (found.rows < at.stop)
        out = copy.copy(found)
        out.rows, out.right, out.weight = found.rows[some] - at.start, found.right[some], found.weight[some]
        return out

    def sampled(self, first, every, count):
        """Every so many-th of all rows from `first` on, where own rows are numbered from 0."""
        return slice((first - self.part(count).start) % every, None, every)

    def whole(self, rows):
        """[n, ...] of each process -> [size * n, ...]."""
        out = torch.empty(self.size * len(rows), *rows.shape[1:], dtype=rows.dtype, device=rows.device)
        dist.all_gather_into_tensor(out, rows.contiguous(), group=self.group)
        return out

    def own_sum(self, parts):
        """[size * n, ...] of each process -> the sum of own rows [n, ...]."""
        if not parts.is_cuda:  # gloo
            total = parts.contiguous().clone()
            dist.all_reduce(total, group=self.group)
            return self.own(total).contiguous()
        out = torch.empty(len(parts) // self.size, *parts.shape[1:], dtype=parts.dtype, device=parts.device)
        dist.reduce_scatter_tensor(out, parts.contiguous(), group=self.group)
        return out

    def expand(self, grads, cfg):
        """Gradients of own parts of matrices to those of whole ones, zeros elsewhere."""
        out = dict(grads)
        for name in ROWS + COLUMNS:
            out[name] = torch.zeros(cfg.shape(name), device=grads[name].device)
            self.cut(out[name], name).copy_(grads[name])
        return out

    def cut(self, x, name):
        """Own part of a stack of matrices."""
        return x[:, self.part(x.shape[1])] if name in ROWS else x[:, :, self.part(x.shape[2])]


def part_of(w, group):
    """Weights of which this process computes its part of a pass."""
    cfg, out = w.cfg, copy.copy(w)
    if cfg.n_heads % group.size or cfg.d_ff % group.size:
        raise ValueError("%d heads and %d hidden units are not divided by %d" % (cfg.n_heads, cfg.d_ff, group.size))
    out.split, out.heads, out.matrices, out.const = group, cfg.n_heads // group.size, dict(w.matrices), SimpleNamespace(**vars(w.const))
    for name in ROWS + COLUMNS:
        m = w.matrices[name]
        scale = m.scale[:, group.part(m.scale.shape[1])] if name in ROWS else m.scale
        out.matrices[name] = model.Matrix(group.cut(m.weight, name).contiguous(), scale.contiguous(), m.scalar)
    for name in ("sq", "cq", "co", "alpha"):  # [layers, outputs of q or up]
        value = getattr(w.const, name)
        setattr(out.const, name, value[:, group.part(value.shape[1])].contiguous())
    return out
