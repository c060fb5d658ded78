"""Muon (Jordan et al. 2024) for the matrices, Adam for the embedding, the scalars and the clips. Learning rates follow one schedule:
a short warm-up, a plateau, a straight line to zero over the last part."""
import torch

RATES = {"matrix": 6e-3, "embed": 8e-3, "scalar": 4e-3, "clip": 4e-3, "head": 2e-3}
WEIGHT_DECAY = 0.1  # matrices only, times the learning rate
WARM, FLAT = 0.02, 0.55  # shares of the run


def schedule(progress):
    """Factor on all rates at progress 0 ... 1."""
    if progress < WARM:
        return 0.05 + 0.95 * progress / WARM
    return 1.0 if progress < FLAT else max(0.0, (1 - progress) / (1 - FLAT))


def orthogonalise(g, steps=5):
    """Newton-Schulz towards U V^T, batched over the first dimension, in bf16."""
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.float().norm(dim=(-2, -1), keepdim=True) + 1e-20).bfloat16() / 1.01
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return (x.mT if tall else x).float()


class Optimiser:
    def __init__(self, params):
        self.params, self.step_count = params, 0
        self.first = {k: torch.zeros_like(v) for k, v in params.items()}
        self.second = {k: torch.zeros_like(v) for k, v in params.items() if v.ndim < 3}

    @staticmethod
    def group(name, value):
        return "matrix" if value.ndim == 3 else "embed" if name == "embed" else "scalar" if name.endswith("_scalar") else "head" if name.startswith("classifier") else "clip"

    @torch.no_grad()
    def step(self, grads, factor, norm=None):
        """norm: of the gradients; None: of these."""
        self.step_count += 1
        t = self.step_count
        # Clipped against spikes; Muon and Adam do not care for the scale otherwise.
        norm = torch.stack([g.float().square().sum() for g in grads.values()]).sum().sqrt() if norm is None else norm
        shrink = (1.0 / (norm + 1e-12)).clamp_max(1.0)
        for name, p in self.params.items():
            g, m, group = grads[name].float() * shrink, self.first[name], self.group(name, p)
            rate = RATES[group] * factor
            if name not in self.second:
                m.lerp_(g, 0.05)
                update = orthogonalise(torch.lerp(g, m, 0.95))  # Nesterov
                # Each element moves by about 0.2 * rate, as under Adam (Liu et al. 2025).
                p.mul_(1 - rate * WEIGHT_DECAY).add_(update, alpha=-rate * 0.2 * max(p.shape[1:]) ** 0.5)
            else:
                v = self.second[name]
                slow = 0.99 if group != "embed" else 0.95
                m.lerp_(g, 0.1)
                v.lerp_(g.square(), 1 - slow)
                p.add_(m / (1 - 0.9 ** t) / ((v / (1 - slow ** t)).sqrt() + 1e-12), alpha=-rate)
        return norm

    def state(self):
        return {"step_count": self.step_count, "first": self.first, "second": self.second}

    def load(self, state):
        self.step_count = state["step_count"]
        for mine, theirs in ((self.first, state["first"]), (self.second, state["second"])):
            for k, v in mine.items():
                v.copy_(theirs[k])


class Steady:
    """For gradients that are mostly noise: momentum for the matrices alone, all elements of a matrix divided by one number, the root of its mean
    square. Muon and Adam make noise as large as what gradients agree on; this does not."""

    def __init__(self, params):
        self.params, self.step_count = {k: v for k, v in params.items() if Optimiser.group(k, v) == "matrix"}, 0
        self.first = {k: torch.zeros_like(v) for k, v in self.params.items()}
        self.second = {k: torch.zeros_like(v[:, :1, :1]) for k, v in self.params.items()}

    @torch.no_grad()
    def step(self, grads, factor):
        self.step_count += 1
        t, rate = self.step_count, RATES["matrix"] * factor
        for name, p in self.params.items():
            g, m, v = grads[name].float(), self.first[name], self.second[name]
            m.lerp_(g, 0.1)
            v.lerp_(g.square().mean((1, 2), keepdim=True), 0.02)
            p.sub_(m / (1 - 0.9 ** t) / ((v / (1 - 0.98 ** t)).sqrt() + 1e-20) * rate)
