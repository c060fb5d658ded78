"""Ternary weight updates in training. Every node pins int8 weights and their scales; after a step of the optimiser each weight moves
towards rint(master / scale) by -1, 0 or 1, and only that is sent, five to a byte. What a weight lacks it makes up in later steps, as
the masters keep it. A matrix is sent whole, with new scales, when its steps have grown: when more than BEHIND of its weights lack more
than a step, or more than ROWS of its rows no longer fit their scales. Character.AI named these updates and 1.6 bits a parameter; when to send whole is ours."""
import torch

import cuda_library
import model
import weight_stream

BEHIND = 0.02  # share of a matrix's weights
ROWS = 0.05  # share of its rows
ROOM = 1.0 / 16  # that a row may grow by before its scale is too small
NAMES = model.MATRICES + ("embed", "classifier")


def pack(steps):
    """As weight_stream.pack, on any device."""
    digits = torch.nn.functional.pad(steps.flatten().to(torch.int16) + 1, (0, -steps.numel() % weight_stream.FIVE), value=1)
    return (digits.view(-1, weight_stream.FIVE) * torch.tensor(weight_stream.POWERS, device=steps.device)).sum(1).to(torch.uint8)


def unpack(data, count):
    """As weight_stream.unpack, on any device."""
    powers = torch.tensor(weight_stream.POWERS, device=data.device)
    return (data[:, None].to(torch.int16) // powers % 3 - 1).to(torch.int8).flatten()[:count]


def advance(master, scale, weight):
    """Moves each weight towards rint(master / scale), by at most 1. Returns the packed steps, and how many weights lack more."""
    if weight.is_cuda:
        data = torch.empty(-(-weight.numel() // weight_stream.FIVE), dtype=torch.uint8, device=weight.device)
        behind = torch.zeros(1, dtype=torch.int64, device=weight.device)
        cuda_library.call(cuda_library.load("ternary").ternary_advance, master.contiguous(), scale.contiguous(), weight, data, weight.numel(), weight.shape[-1], behind)
        return data, behind[0]
    missing = (master / scale[..., None]).round().clamp(-127, 127).to(torch.int16) - weight
    steps = missing.clamp(-1, 1).to(torch.int8)
    weight += steps
    return pack(steps), (missing.abs() > 1).sum()


def add(data, weight):
    """Of who receives the steps."""
    if weight.is_cuda:
        cuda_library.call(cuda_library.load("ternary").ternary_add, data, weight, weight.numel())
    else:
        weight += unpack(data, weight.numel()).view_as(weight)


def has_grown(master, scale, behind, most=BEHIND):
    """Whether steps no longer do for a matrix: too many of its weights lack more than a step, or too many of its rows outgrow their
    scales, where they saturate, or use less than half of them. On the device."""
    largest = master.abs().amax(-1)
    misfits = (largest > scale * 127.5) | (largest < scale * 127 / 2)
    return (behind > most * master.numel()) | (misfits.sum() > ROWS * misfits.numel())


class Pinned:
    """The int8 weights and scales that every node has, by the names of the masters: `weight` and `scale`."""

    def __init__(self, masters, behind=BEHIND, names=NAMES):
        self.weight, self.scale, self.whole, self.sent, self.count, self.most_behind = {}, {}, 0, 0, 0, behind
        for name in names:
            if name in masters:
                self.renew(name, masters[name])
        self.whole = self.sent = self.count = 0

    def renew(self, name, master):
        """Sends a matrix whole, with scales that leave some room."""
        scale = (master.abs().amax(-1) * (1 + ROOM) / 127).clamp_min(1e-12)
        weight = (master / scale[..., None]).round().clamp(-127, 127).to(torch.int8)
        for have, new in ((self.scale, scale), (self.weight, weight)):
            if name in have:
                have[name].copy_(new)  # in place: a CUDA graph may read it
            else:
                have[name] = new
        self.whole += 1
        self.sent += master.numel() + 4 * self.scale[name].numel()

    @torch.no_grad()
    def follow(self, masters):
        """After a step of the optimiser. Counts the bytes that would be sent."""
        self.count += 1
        for name in self.weight:
            data, behind = advance(masters[name].detach(), self.scale[name], self.weight[name])
            if has_grown(masters[name], self.scale[name], behind, self.most_behind):
                self.renew(name, masters[name])
            else:
                self.sent += len(data)

    def state(self):
        return {"weight": self.weight, "scale": self.scale, "whole": self.whole, "sent": self.sent, "count": self.count}

    def load(self, state):
        self.weight, self.scale, self.whole, self.sent, self.count = (state[k] for k in ("weight", "scale", "whole", "sent", "count"))

    def bytes_per_weight(self):
        return self.sent / max(1, self.count) / sum(w.numel() for w in self.weight.values())
