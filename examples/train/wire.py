"""Gradients on the wire: sums over processes in fewer bytes. A sum is a reduce-scatter and an all-gather: each process encodes its
gradients once, gets the messages of all for its part, adds them up in the order of the processes, and sends the sum, encoded again.
So every process ends with the same bits, and a value crosses the wire twice whatever the format, as in an all-reduce.

    wire = Wire("squinch", feedback=True)
    total = wire.sum(flat)                                    # as torch.distributed.all_reduce
    ddp.register_comm_hook(wire, ddp_hook)                    # DistributedDataParallel
    fsdp.register_comm_hook(wire, fsdp_hook)                  # FullyShardedDataParallel: its reduce-scatter, without feedback
    reduce_scatter_by(wire, module)                           # all that fully_shard has divided in a module

Formats: fp32, bf16; fp8 (e4m3, one scale for 1,024 values); squinch (6 bits); sign (1 bit, one scale for 1,024 values: Seide et al.
2014, which needs feedback)."""
import torch
import torch.distributed as dist

import cuda_library
import squinch

FORMATS = ("fp32", "bf16", "fp8", "squinch", "sign")
GROUP = 1024  # values that share a scale in fp8 and sign; a multiple of the unit of all formats
EIGHT = 448.0  # the largest e4m3


def squinch_encode(x, error=None):
    """float32 [parts, 8 n] -> uint8 [parts, 6 n] of the same bytes as squinch.encode, row by row. `error`: is added, and becomes what
    is lost."""
    parts, n = x.shape[0], x.shape[1] // squinch.BLOCK
    out = torch.empty(parts, n * squinch.BYTES, dtype=torch.uint8, device=x.device)
    if x.is_cuda:

        cuda_library.call(cuda_library.load("squinch").squinch_encode, x.contiguous(), error, out, n, parts)
        return out
    given = x if error is None else x + error
    bits = given.contiguous().view(torch.int32).view(parts, n, squinch.BLOCK)
    size, shifts = bits & 0x7FFFFFFF, torch.arange(squinch.BLOCK, device=x.device, dtype=torch.int64)

    def quarters(size, thresholds):
        return ((size >> 23) - 127) * 4 + sum(((size & 0x7FFFFF) >= t).int() for t in thresholds)
    largest = size.amax(2)
    code = (quarters(largest, squinch.BETWEEN) + squinch.ORIGIN).clamp(0, squinch.MOST)
    level = ((code[..., None] - squinch.ORIGIN - quarters(size, squinch.QUARTERS)) >> 1).clamp(0, squinch.LAST)
    zero = (code == 0)[..., None]
    level, sign = level.masked_fill(zero, 0).long(), (bits < 0).masked_fill(zero, False).long()
    code = code.masked_fill(largest >= 0x7F800000, squinch.NOT_FINITE)
    words = (level << (4 * shifts)).sum(2)
    out[:, :4 * n] = torch.stack([words >> s & 255 for s in (0, 8, 16, 24)], 2).to(torch.uint8).flatten(1)
    out[:, 4 * n:5 * n] = (sign << shifts).sum(2).to(torch.uint8)
    out[:, 5 * n:] = code.to(torch.uint8)
    if error is not None:
        error.copy_((given - torch.stack([squinch_decode(row[None]) for row in out])).nan_to_num(0.0, 0.0, 0.0))  # nothing of what was not finite
    return out


def squinch_decode(data, factor=1.0):
    """The sum of the rows of uint8 [parts, 6 n], in their order, times a factor: float32 [8 n]."""
    parts, n = data.shape[0], data.shape[1] // squinch.BYTES
    if data.is_cuda:

        out = torch.empty(n * squinch.BLOCK, device=data.device)
        cuda_library.call(cuda_library.load("squinch").squinch_decode, data, out, n, parts, float(factor))
        return out
    shifts, total = torch.arange(squinch.BLOCK), torch.zeros(n, squinch.BLOCK)
    table = torch.tensor(squinch.QUARTER_BITS, dtype=torch.int32)
    for row in data.int():
        words = row[:4 * n].view(n, 4).repeat_interleave(2, 1) >> (4 * (shifts % 2)) & 15
        code = row[5 * n:, None]
        quarters = code - squinch.ORIGIN - 2 * words
        bits = ((quarters >> 2) + 127) << 23 | table[(quarters & 3).long()]
        value = bits.int().view(torch.float32).masked_fill(code == squinch.NOT_FINITE, float("nan"))
        value = torch.where((row[4 * n:5 * n, None] >> shifts & 1) == 1, -value, value)
        total += value.masked_fill(code == 0, 0.0)
    return total.flatten() * factor


def scaled(x, most):
    """float32 [parts, n] as groups, and each group's factor to `most`."""
    groups = x.view(x.shape[0], -1, GROUP)
    return groups, most / groups.abs().amax(2, keepdim=True).clamp_min(1e-30)


class Format:
    """What a message of float32 values is: encode [parts, n] -> bytes [parts, m]; decode one part."""

    def __init__(self, name):
        self.name = name

    def encode(self, x):
        if self.name == "fp32":
            return x.contiguous().view(torch.uint8)
        if self.name == "bf16":
            return x.bfloat16().view(torch.uint8)
        if self.name == "squinch":
            return squinch_encode(x)
        groups, factor = scaled(x, EIGHT)
        if self.name == "fp8":
            values = (groups * factor).to(torch.float8_e4m3fn).flatten(1).view(torch.uint8)
            return torch.cat([values, factor.flatten(1).contiguous().view(torch.uint8)], 1)
        mean = groups.abs().mean(2).contiguous()
        signs = ((groups >= 0).view(x.shape[0], -1, 8) << torch.arange(8, device=x.device)).sum(2).to(torch.uint8)
        return torch.cat([signs, mean.view(torch.uint8)], 1)

    def decode(self, data, count):
        """Bytes of one part to float32 [count]."""
        if self.name == "fp32":
            return data.view(torch.float32)
        if self.name == "bf16":
            return data.view(torch.bfloat16).float()
        if self.name == "squinch":
            return squinch_decode(data[None])
        groups = count // GROUP
        values, scales = data[:-4 * groups], data[-4 * groups:].clone().view(torch.float32)[:, None]
        if self.name == "fp8":
            return (values.view(torch.float8_e4m3fn).float().view(groups, GROUP) / scales).flatten()
        bits = values[:, None] >> torch.arange(8, device=data.device, dtype=torch.uint8) & 1
        return ((bits.float() * 2 - 1).view(groups, GROUP) * scales).flatten()

    def decode_sum(self, data, count, factor):
        if self.name == "squinch":
            return squinch_decode(data, factor)
        total = self.decode(data[0].contiguous(), count)
        for row in data[1:]:
            total = total + self.decode(row.contiguous(), count)
        return total * factor


class Wire:
    """Sums of gradients over the processes of a group. `feedback`: what a process loses in a step it adds to the next one's gradients,
    before the first and before the second encoding; of each place (a tuple of what is added up) for itself."""

    def __init__(self, name, feedback=False, group=None):
        self.format, self.feedback, self.group = Format(name), feedback, group
        self.lost, self.sent = {}, 0  # bytes that this process has sent

    def encode(self, x, place, *which):
        if not self.feedback:
            return self.format.encode(x)
        lost = self.lost.setdefault((place, which, x.shape), torch.zeros_like(x))
        if self.format.name == "squinch":
            return squinch_encode(x, lost)
        given = x + lost
        data = self.format.encode(given)
        lost.copy_(given - torch.stack([self.format.decode(row.contiguous(), x.shape[1]) for row in data]))
        return data

    def reduce_scatter(self, flat, factor=1.0, place=()):
        """float32 [ranks * n], n a multiple of GROUP -> [n]: this process's part of the sum, times a factor."""
        ranks = dist.get_world_size(self.group)
        data = self.encode(flat.view(ranks, -1), place, "parts")
        got = torch.empty_like(data)
        dist.all_to_all_single(got, data, group=self.group)
        self.sent += data.numel() * (ranks - 1) // ranks
        return self.format.decode_sum(got, flat.numel() // ranks, factor)

    def all_gather(self, part, place=()):
        """float32 [n] of each process -> [ranks * n]: the same bits in every process."""
        ranks = dist.get_world_size(self.group)
        data = self.encode(part[None], place, "sum")
        got = torch.empty(ranks * data.shape[1], dtype=torch.uint8, device=data.device)
        dist.all_gather_into_tensor(got, data[0], group=self.group)
        self.sent += data.numel() * (ranks - 1)
        return torch.cat([self.format.decode(row.contiguous(), part.numel()) for row in got.view(ranks, -1)])

    def sum(self, flat, factor=1.0, place=()):
        """float32 [n] -> the sum over all processes, times a factor."""
        ranks = dist.get_world_size(self.group)
        size = -(-flat.numel() // (ranks * GROUP)) * ranks * GROUP
        padded = torch.zeros(size, device=flat.device)
        padded[:flat.numel()] = flat
        return self.all_gather(self.reduce_scatter(padded, factor, place), place)[:flat.numel()]


class Rehearsal(Wire):
    """What a Wire of several processes gives, computed in one: for studies of the loss on one GPU."""

    def sum(self, flats, factor=1.0, place=()):
        """float32 [n] of each process -> the sum that all of them would have."""
        ranks, count = len(flats), flats[0].numel()
        padded = torch.zeros(ranks, -(-count // (ranks * GROUP)) * ranks * GROUP, device=flats[0].device)
        for rank, flat in enumerate(flats):
            padded[rank, :count] = flat
        sent = [self.encode(padded[rank].view(ranks, -1), place, "parts", rank) for rank in range(ranks)]
        size, parts = padded.shape[1] // ranks, []
        for rank in range(ranks):
            part = self.format.decode_sum(torch.stack([data[rank] for data in sent]), size, factor)
            data = self.encode(part[None], place, "sum", rank)
            parts.append(self.format.decode(data[0].contiguous(), size))
            self.sent += (sent[rank].numel() * (ranks - 1) // ranks + data.numel() * (ranks - 1)) // ranks  # of each process
        return torch.cat(parts)[:count]


def ddp_hook(wire, bucket):
    """For DistributedDataParallel.register_comm_hook(wire, ddp_hook): the mean. A bucket's place is its parameters: after the first step
    DistributedDataParallel divides them among buckets anew."""
    flat, place = bucket.buffer(), tuple(id(p) for p in bucket.parameters())
    wire.lost = {key: lost for key, lost in wire.lost.items() if key[0] == place or not set(key[0]) & set(place)}
    mean = wire.sum(flat.float(), 1 / dist.get_world_size(wire.group), place)
    done = torch.futures.Future()
    done.set_result(mean.to(flat.dtype))
    return done


def padded_parts(grad, ranks):
    """[ranks * n] of any n -> float32 [ranks * m], m a multiple of GROUP: zeros at the end of each part."""
    parts = grad.float().view(ranks, -1)
    return torch.nn.functional.pad(parts, (0, -parts.shape[1] % GROUP)).flatten()


def reduce_scatter_into(output, wire, grad, factor, place):
    """Of any size: this process's part of the sum, times a factor."""
    part = wire.reduce_scatter(padded_parts(grad, dist.get_world_size(wire.group)), factor, place)
    output.copy_(part[:output.numel()])


def fsdp_hook(wire, grad, output):
    """For FullyShardedDataParallel.register_comm_hook(wire, fsdp_hook): this process's part of the mean into `output`."""
    if wire.feedback:
        raise ValueError("fsdp_hook cannot tell which unit a gradient is of, so it has no feedback: use fully_shard and reduce_scatter_by")
    reduce_scatter_into(output, wire, grad, 1 / dist.get_world_size(wire.group), ())


class WireReduceScatter:
    """For FSDPModule.set_custom_reduce_scatter (fully_shard): one for each module, whose place it is."""

    def __init__(self, wire):
        self.wire = wire

    def allocate(self, size, *, dtype, device):
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        mean = op == dist.ReduceOp.AVG
        if async_op or not (mean or op == dist.ReduceOp.SUM):
            raise ValueError("WireReduceScatter gives sums and means, and waits for them: nothing asynchronous, no set_gradient_divide_factor")
        if dist.get_process_group_ranks(group) != dist.get_process_group_ranks(self.wire.group):
            raise ValueError("fully_shard adds up over other processes than the Wire, which needs group=, the group of the mesh's dimension that shards")
        reduce_scatter_into(output_tensor, self.wire, input_tensor, 1 / dist.get_world_size(group) if mean else 1.0, (self,))


def reduce_scatter_by(wire, module):
    """All that fully_shard has divided in a module sends its gradients by a wire."""
    from torch.distributed.fsdp import FSDPModule  # takes long to import
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.set_custom_reduce_scatter(WireReduceScatter(wire))
