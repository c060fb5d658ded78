"""Ternary weight updates in training. Every node pins int8 weights and their scales; after a step of the optimiser each weight moves
towards rint(master / scale) by -1, 0 or 1, and only that is sent, five to a byte. What a weight lacks it makes up in later steps, as
the masters keep it. A scale is its row's largest weight over LARGEST, not over 127, because coarser steps are fewer and weights lack less. The
scales follow as well, by a 128th of themselves up or down. A matrix is sent whole, with new scales, when its steps have grown: when more
than BEHIND of its weights lack more than a step, or more than ROWS of its rows are far from their scales. Character.AI named these updates and 1.6 bits a parameter; the steps of scales, and when to send whole, are ours."""
import torch

import cuda_library
import model
import weight_stream

BEHIND = 0.02  # share of a matrix's weights
ROWS = 0.05  # share of its rows
LARGEST, FULL, LEAST = 64, 64.5, 56  # of a row in its scale's steps: at first; above which the scale grows; below which it shrinks
FAR = 32, 127  # a row whose largest weight is outside is far from its scale; above it saturates
NAMES = model.MATRICES + ("embed",)  # every process quantises the classifier, which is small, anew in each step


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


def fit(master, scale):
    """Moves each scale by a step towards its row. Returns the packed steps, and how many rows are far from their scales."""
    largest = master.abs().amax(-1)
    far = (largest < scale * FAR[0]) | (largest > scale * FAR[1])
    data = pack((largest > scale * FULL).to(torch.int8) - (largest < scale * LEAST).to(torch.int8))
    add_to_scales(data, scale)
    return data, far.sum()


def add_to_scales(data, scale):
    """Of who receives the steps of scales."""
    scale *= 1 + unpack(data, scale.numel()).view_as(scale) * weight_stream.SCALE_STEP


def has_grown(master, scale, behind, far, most=BEHIND):
    """Whether steps no longer do for a matrix. On the device."""
    return (behind > most * master.numel()) | (far > ROWS * scale.numel())


class Pinned:
    """The int8 weights and scales that every node has, by the names of the masters: `weight` and `scale`."""

    def __init__(self, masters, behind=BEHIND, names=NAMES):
        self.weight, self.scale, self.whole, self.sent, self.count, self.lacking, self.most_behind = {}, {}, 0, 0, 0, 0, behind
        for name in names:
            if name in masters:
                self.renew(name, masters[name])
        self.whole = self.sent = self.count = 0

    def renew(self, name, master):
        """Sends a matrix whole, with new scales."""
        scale = (master.abs().amax(-1) / LARGEST).clamp_min(1e-12)
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
        self.count, grown, lacking = self.count + 1, [], 0
        for name in self.weight:
            scales, far = fit(masters[name], self.scale[name])
            data, behind = advance(masters[name], self.scale[name], self.weight[name])
            grown.append(has_grown(masters[name], self.scale[name], behind, far, self.most_behind))
            self.sent, lacking = self.sent + len(scales) + len(data), lacking + behind
        self.lacking = self.lacking + lacking
        for name, is_grown in zip(self.weight, torch.stack(grown).tolist()):
            if is_grown:
                self.renew(name, masters[name])

    def state(self):
        return {k: getattr(self, k) for k in ("weight", "scale", "whole", "sent", "count", "lacking")}

    def load(self, state):
        vars(self).update(state)

    def weights(self):
        return sum(w.numel() for w in self.weight.values())

    def bytes_per_weight(self):
        return self.sent / max(1, self.count) / self.weights()

    def share_lacking(self):
        """Of the weights, those that lacked more than a step, on average over what this process has followed."""
        return float(self.lacking) / max(1, self.count) / self.weights()
