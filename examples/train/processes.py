"""The processes of a check on a CPU. They are forked, so that PyTorch is imported once, and find each other as those of torchrun do."""
import os
import socket

import torch
import torch.distributed
import torch.multiprocessing

torch.set_num_threads(1)  # before anything is computed: a forked process has none of the threads that OpenMP has started


def enter(rank, ranks, port, work, arguments):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    work(*arguments)


def run(ranks, work, *arguments):
    """Calls work(*arguments) in each of so many processes. Raises what one of them raises."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.start_processes(enter, (ranks, port, work, arguments), ranks, start_method="fork")
