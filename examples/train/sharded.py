"""Masters and optimiser state divided among processes: each has the float32 masters of some matrices, and every process has the int8
weights of all. Gradients are reduce-scattered to the owners of the masters; after the optimiser's step each owner sends what its weights
have become: bytes, or ternary steps (ternary.py). Kaiju's authors told of masters under FSDP, int8 weights in the forward pass and
gradients in 6 bits; this form is ours.

A unit is one matrix of a stack, because Muon needs it whole, or the rows of the embedding that a process has. Scalars and clips are few:
every process has them and takes the same steps. whole() gathers a state that is whole, which any number of processes can go on from."""
import torch
import torch.distributed as dist

import model
import optim
import ternary
import wire as wires

ALIGNED = 4  # bytes of a stack's steps are padded to a multiple


def divide(sizes, ranks):
    """Lists of indices, one for each rank: the largest first, each to the rank that has least."""
    own, load = [[] for _ in range(ranks)], [0] * ranks
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        rank = load.index(min(load))
        own[rank].append(i)
        load[rank] += sizes[i]
    return [sorted(indices) for indices in own]


class Plan:
    """Which process owns which units, and where they lie in its part of a flat buffer. Units of one name are neighbours there."""

    def __init__(self, params, ranks):
        self.names, rows = ("embed",) + model.MATRICES, params["embed"].shape[0]
        units = [("embed", slice(r * rows // ranks, (r + 1) * rows // ranks)) for r in range(ranks)]
        units += [(name, slice(i, i + 1)) for name in model.MATRICES for i in range(params[name].shape[0])]
        sizes = [params[name][at].numel() for name, at in units]
        self.own = [[units[u] for u in own] for own in divide(sizes, ranks)]
        self.shapes = {name: params[name].shape for name in self.names}
        loads = [sum(params[name][at].numel() for name, at in own) for own in self.own]
        self.part = -(-max(loads) // wires.GROUP) * wires.GROUP
        self.rows = max(sum(params[name][at].numel() // params[name].shape[-1] for name, at in own) for own in self.own)

    def stacks(self, rank, part, by_rows=False):
        """{name: view of a part's units}: of values, or of one number for each row."""
        found, at = {}, 0
        for name in self.names:
            count = sum(index.stop - index.start for n, index in self.own[rank] if n == name)
            shape = (count,) + tuple(self.shapes[name][1:-1] if by_rows else self.shapes[name][1:])
            size = torch.Size(shape).numel()
            if count:
                found[name] = part[at:at + size].view(shape)
                at += size
        return found

    def units(self, parts, by_rows):
        """(name, where in the whole tensor, view of it) of every unit in a buffer [ranks, part]."""
        for rank, own in enumerate(self.own):
            stacks, at = self.stacks(rank, parts[rank], by_rows), dict.fromkeys(self.names, 0)
            for name, index in own:
                count = index.stop - index.start
                yield name, index, stacks[name][at[name]:at[name] + count]
                at[name] += count

    def flatten(self, tensors, like, by_rows=False):
        """Whole tensors into a buffer [ranks, part]."""
        for name, index, unit in self.units(like, by_rows):
            unit.copy_(tensors[name][index])
        return like

    def spread(self, parts, out, by_rows=False):
        """The reverse."""
        for name, index, unit in self.units(parts, by_rows):
            out[name][index] = unit
        return out


class Masters:
    """This process's masters and their optimiser, and the weights of all: `weight` and `scale` by name, for model.quantise."""

    def __init__(self, params, by=None, in_steps=False):
        """params: whole masters, the same in every process; they are not kept. by: a wires.Wire for the gradients; None: float32.
        in_steps: weights are sent as ternary steps."""
        self.rank, self.ranks, device = dist.get_rank(), dist.get_world_size(), params["embed"].device
        self.plan, self.wire, self.in_steps = Plan(params, self.ranks), by or wires.Wire("fp32"), in_steps
        plan = self.plan
        self.flat = plan.flatten(params, torch.zeros(self.ranks, plan.part, device=device))[self.rank].clone()
        self.stacks = plan.stacks(self.rank, self.flat)
        self.small = {k: v.detach().clone() for k, v in params.items() if k not in plan.names}
        self.optimiser = optim.Optimiser({**self.stacks, **self.small})
        self.bytes = torch.zeros(self.ranks, plan.part, dtype=torch.int8, device=device)
        self.scales = torch.ones(self.ranks, plan.rows, device=device)
        self.weight = {k: torch.zeros(plan.shapes[k], dtype=torch.int8, device=device) for k in plan.names}
        self.scale = {k: torch.zeros(plan.shapes[k][:-1], device=device) for k in plan.names}
        self.sent = self.whole_sent = 0  # bytes of weights that this process has sent to each other one; times that they were whole
        self.send_whole()

    def step(self, grads, factor):
        """grads: whole gradients of this process's part of the batch, whose sum over all processes is meant."""
        plan = self.plan
        flat = plan.flatten(grads, torch.zeros(self.ranks, plan.part, device=self.flat.device)).flatten()
        own = plan.stacks(self.rank, self.wire.reduce_scatter(flat))
        small = torch.cat([grads[k].flatten().float() for k in self.small])
        dist.all_reduce(small)
        parts = small.split([v.numel() for v in self.small.values()])
        own.update({k: part.view_as(v) for (k, v), part in zip(self.small.items(), parts)})
        self.optimiser.step(own, factor, self.norm(own))
        if not (self.in_steps and self.send_steps()):
            self.send_whole()

    def norm(self, own):
        """Of all gradients: the squares of each process's units, added up in the order of the processes."""
        squares = torch.stack([own[k].square().sum() for k in self.stacks]).sum()[None]
        found = torch.empty(self.ranks, device=squares.device)
        dist.all_gather_into_tensor(found, squares)
        return (found.sum() + sum(own[k].square().sum() for k in self.small)).sqrt()

    def send_whole(self):
        plan, largest = self.plan, ternary.LARGEST if self.in_steps else 127
        weights, scales = plan.stacks(self.rank, self.bytes[self.rank]), plan.stacks(self.rank, self.scales[self.rank], True)
        for name, master in self.stacks.items():
            scales[name].copy_((master.abs().amax(-1) / largest).clamp_min(1e-12))
            weights[name].copy_((master / scales[name][..., None]).round().clamp(-127, 127))
        for every in (self.bytes, self.scales):
            mine = every[self.rank].clone()
            dist.all_gather_into_tensor(every.flatten(), mine)
            self.sent += mine.numel() * mine.element_size()
        plan.spread(self.scales, self.scale, True)
        plan.spread(self.bytes, self.weight)
        self.whole_sent += 1

    def send_steps(self):
        """False: some process's steps have grown, and nothing was sent."""
        plan, mine, own = self.plan, self.bytes[self.rank].clone(), self.scales[self.rank].clone()
        weights, scales = plan.stacks(self.rank, mine), plan.stacks(self.rank, own, True)
        grown, sent = torch.zeros(1, device=mine.device), []
        for name, master in self.stacks.items():
            steps, far = ternary.fit(master, scales[name])
            data, behind = ternary.advance(master, scales[name], weights[name])
            grown += ternary.has_grown(master, scales[name], behind, far)
            sent += [torch.nn.functional.pad(x, (0, -len(x) % ALIGNED)) for x in (data, steps)]
        dist.all_reduce(grown)
        if grown > 0:
            return False
        every = [(plan.stacks(r, self.bytes[r]).values(), plan.stacks(r, self.scales[r], True).values()) for r in range(self.ranks)]
        size = max(sum(self.step_bytes(x) for both in each for x in both) for each in every)
        data = torch.cat(sent)
        data = torch.nn.functional.pad(data, (0, size - len(data)))
        got = torch.empty(self.ranks * size, dtype=torch.uint8, device=data.device)
        dist.all_gather_into_tensor(got, data)
        self.sent += size
        for part, each in zip(got.view(self.ranks, size), every):
            at = 0
            for weight, scale in zip(*each):
                for add, x in ((ternary.add, weight), (ternary.add_to_scales, scale)):
                    add(part[at:at + -(-x.numel() // 5)], x)
                    at += self.step_bytes(x)
        plan.spread(self.bytes, self.weight)
        plan.spread(self.scales, self.scale, True)
        return True

    @staticmethod
    def step_bytes(x):
        bytes_ = -(-x.numel() // 5)
        return bytes_ + -bytes_ % ALIGNED

    def gathered(self, values):
        """Whole tensors of what each process has of its units, in the order of self.stacks."""
        part = torch.zeros_like(self.flat)
        for name, stack in self.plan.stacks(self.rank, part).items():
            stack.copy_(values[name])
        every = torch.empty(self.ranks, len(part), device=part.device)
        dist.all_gather_into_tensor(every.flatten(), part)
        return self.plan.spread(every, {k: torch.zeros(self.plan.shapes[k], device=part.device) for k in self.plan.names})

    def whole(self):
        """params, and the optimiser's state, as those of one process."""
        state = self.optimiser.state()
        first = {**self.gathered(state["first"]), **{k: state["first"][k] for k in self.small}}
        second = self.small_and_embed(state["second"])
        return {**self.gathered(self.stacks), **self.small}, {"step_count": state["step_count"], "first": first, "second": second}

    def small_and_embed(self, second):
        """Matrices have no second moment."""
        values = {k: second[k] if k in second else torch.zeros_like(v) for k, v in self.stacks.items()}
        return {"embed": self.gathered(values)["embed"], **{k: second[k] for k in self.small}}

    def resume(self, state, pinned=None):
        """The optimiser's state of whole(), of any number of processes. pinned: the weights that ternary steps go on from."""
        if pinned:
            self.plan.flatten(pinned.weight, self.bytes)
            self.plan.flatten(pinned.scale, self.scales, True)
            for name in self.plan.names:
                self.weight[name].copy_(pinned.weight[name])
                self.scale[name].copy_(pinned.scale[name])
        zeros = torch.zeros(self.ranks, self.plan.part, device=self.flat.device)
        first = self.plan.stacks(self.rank, self.plan.flatten(state["first"], zeros)[self.rank])
        embed = {**{k: torch.zeros(self.plan.shapes[k], device=self.flat.device) for k in model.MATRICES}, "embed": state["second"]["embed"]}
        second = self.plan.stacks(self.rank, self.plan.flatten(embed, zeros.clone())[self.rank])
        self.optimiser.load({"step_count": state["step_count"], "first": {**first, **{k: state["first"][k] for k in self.small}},
                             "second": {**second, **{k: state["second"][k] for k in self.small}}})

    def params(self):
        """What model.quantise needs beside the weights: scalars, clips, and the sums of the squares of `up`."""
        squares = torch.zeros(self.plan.shapes["up"][0], device=self.flat.device)
        if "up" in self.stacks:
            own = [index.start for name, index in self.plan.own[self.rank] if name == "up"]
            squares[own] = self.stacks["up"].square().sum((1, 2))
        dist.all_reduce(squares)
        return {**self.small, "up_squares": squares}
