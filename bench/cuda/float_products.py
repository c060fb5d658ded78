#!/usr/bin/env python3
"""int8 products by the float units of a GPU: are they exact, and how fast? For docs/porting.md. Needs PyTorch.

A product of two int8 is below 2^14, and fp16 and bf16 hold every int8. So a sum of 1,040 products is below 2^24 and
exact in a float32 accumulator that keeps 24 bits. Longer rows are cut into pieces whose sums are added as int32.

float_products.py [ROWS OUT IN]
"""
import sys

import torch

PIECE = 1024


def in_pieces(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """a [rows, in] times w [out, in], of a float type, as int32: a float32 sum of each piece, added as integers."""
    total = None
    for begin in range(0, a.shape[1], PIECE):
        x, y = a[:, begin:begin + PIECE].contiguous(), w[:, begin:begin + PIECE].contiguous()
        part = torch.mm(x, y.t(), out_dtype=torch.float32).to(torch.int32)
        total = part if total is None else total.add_(part)
    return total


def milliseconds(work) -> float:
    for _ in range(3):
        work()
    times = []
    for _ in range(20):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def main() -> None:
    rows, out, inner = map(int, sys.argv[1:4]) if len(sys.argv) > 3 else (4096, 5120, 5120)
    torch.manual_seed(1)
    print(torch.cuda.get_device_name(), torch.__version__, f"{rows} x {out} x {inner}")
    for name, low, high in (("random", -127, 128), ("near the bound", 120, 128)):
        a = torch.randint(low, high, (rows, inner), dtype=torch.int8, device="cuda")
        w = torch.randint(low, high, (out, inner), dtype=torch.int8, device="cuda")
        exact = torch._int_mm(a, w.t())
        for dtype in (torch.float16, torch.bfloat16):
            x, y = a.to(dtype), w.to(dtype)
            wrong = (in_pieces(x, y) != exact).sum().item()
            whole = (torch.mm(x, y.t(), out_dtype=torch.float32).to(torch.int32) != exact).sum().item()
            print(f"{name:>15} {str(dtype):>15}: {wrong} of {exact.numel()} sums differ in pieces of {PIECE}, "
                  f"{whole} in one piece")
    work = 2e-9 * rows * out * inner
    took = milliseconds(lambda: torch._int_mm(a, w.t()))
    print(f"int8 into int32: {took:.3f} ms, {work / took:.0f} TOP/s")
    for dtype in (torch.float16, torch.bfloat16):
        x, y = a.to(dtype), w.to(dtype)
        took = milliseconds(lambda: torch.mm(x, y.t(), out_dtype=torch.float32))
        pieces = milliseconds(lambda: in_pieces(x, y))
        print(f"{dtype} into float32: {took:.3f} ms, {work / took:.0f} TOP/s; in pieces that are added: {pieces:.3f} ms, "
              f"{work / pieces:.0f} TOP/s")


if __name__ == "__main__":
    main()
