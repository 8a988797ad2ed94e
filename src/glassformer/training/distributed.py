"""One process, or many that train one model together: the same loop, the same numbers.

Under `torchrun` every process is a rank. Each takes its part of every batch; gradients are averaged over all
(DDP), or parameters, gradients and optimizer are also sharded among them (FSDP). Nothing but numbers travels:
no pickle.
"""

import faulthandler
import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import TCPStore
from torch.distributed.tensor import DTensor, distribute_tensor

from glassformer.errors import GlassError, InputError

T = TypeVar("T")
LOOPBACK = "127.0.0.1"
JOIN_TIMEOUT = timedelta(hours=1)  # until all ranks have joined: one may still be tokenizing
PEER_TIMEOUT = 60  # seconds until a rank that no longer answers ends the others
EXIT_TIMEOUT = 5  # seconds to end in good order after a rank was lost
# How torch words it when another rank does not answer: it has no error class for that.
LOST = re.compile("gloo|nccl|connection|timed out|timeout", re.IGNORECASE)


class LostRank(GlassError):
    """Another process of a training that runs in several has gone."""


@dataclass
class World:
    """The processes that train together: this one is rank `rank` of `size`. A single one needs no network."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @classmethod
    def join(cls, device: str = "cpu", *, timeout: float = PEER_TIMEOUT) -> "World":
        """The world that `torchrun` describes in the environment; a world of one without it."""
        size = _count("WORLD_SIZE", 1)
        if size == 1:
            return cls(device=torch.device(device))

        rank = _count("RANK", 0)
        if not rank < size:
            raise InputError(f"RANK {rank} is out of range (WORLD_SIZE is {size})")
        where = torch.device(device)
        if where.type == "cuda":
            where = torch.device("cuda", _count("LOCAL_RANK", 0))
            torch.cuda.set_device(where)
        _connect(rank, size, "nccl" if where.type == "cuda" else "gloo")
        # Joining may take an hour; from here on a rank that is silent for a minute is lost.
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=timeout))
        return cls(rank, size, where)

    def leave(self) -> None:
        """Close the connections."""
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()

    @property
    def is_main(self) -> bool:
        """Whether this is the rank that reports and saves."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """This rank's part of a batch."""
        start = self.rank * len(items) // self.size
        stop = (self.rank + 1) * len(items) // self.size
        return items[start:stop]

    def wrap(self, model: nn.Module, parallel: str) -> nn.Module:
        """The model as it is called in training."""
        if self.size == 1:
            return model
        if parallel == "ddp":
            return nn.parallel.DistributedDataParallel(model)

        from torch.distributed.fsdp import fully_shard

        # Blocks first: each becomes a unit that is gathered just before it runs and let go of right after.
        for blocks in (module for module in model.modules() if isinstance(module, nn.ModuleList)):
            for block in blocks:
                fully_shard(block)
        fully_shard(model)
        return model

    def accumulate(self, model: nn.Module, *, last: bool) -> AbstractContextManager[None]:
        """Around one part of a step: gradients are exchanged once, with the last part."""
        if last or not isinstance(model, nn.parallel.DistributedDataParallel):
            return nullcontext()
        return model.no_sync()

    def reshard(self, model: nn.Module) -> None:
        """Let go of other ranks' shards, which FSDP keeps after a forward pass without a backward pass."""
        if self.size == 1:
            return
        from torch.distributed.fsdp import FSDPModule

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def sum(self, *values: float) -> list[float]:
        """Each value, summed over all ranks."""
        if self.size == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(numbers)
        return [float(number) for number in numbers]

    def any(self, *votes: bool) -> list[bool]:
        """Each question: whether any rank says yes."""
        return [bool(count) for count in self.sum(*votes)]

    def gather(self, value: Tensor) -> Tensor:
        """The full tensor of a sharded one, on the CPU of rank 0; every rank must call this at once."""
        full = value.full_tensor() if isinstance(value, DTensor) else value
        return full.detach().cpu() if self.is_main else torch.empty(0)  # the others only took part

    def scatter(self, value: Tensor, like: Tensor) -> Tensor:
        """Rank 0's tensor on every rank, sharded as `like` is."""
        value = value.to(self.device)
        if isinstance(like, DTensor) and value.shape == like.shape:
            return distribute_tensor(value, like.device_mesh, like.placements)
        if self.size > 1:
            dist.broadcast(value, 0)
        return value

    def stack(self, value: Tensor) -> Tensor:
        """The tensors of all ranks, one row each, on the CPU."""
        if self.size == 1:
            return value[None].cpu()
        parts = [torch.empty_like(value, device=self.device) for _ in range(self.size)]
        dist.all_gather(parts, value.to(self.device))
        return torch.stack(parts).cpu()

    def broadcast(self, text: str) -> str:
        """Rank 0's text, on every rank."""
        if self.size == 1:
            return text
        data = bytearray(text.encode()) if self.is_main else bytearray()
        length = torch.tensor([len(data)], device=self.device)
        dist.broadcast(length, 0)

        # frombuffer refuses an empty buffer, so the receivers start from zeros of the announced length.
        raw = (
            torch.frombuffer(data, dtype=torch.uint8) if data else torch.zeros(int(length), dtype=torch.uint8)
        )
        raw = raw.to(self.device)
        dist.broadcast(raw, 0)
        return bytes(raw.cpu().tolist()).decode()

    @contextmanager
    def expect_peers(self) -> Iterator[None]:
        """Around work with other ranks: losing one of them is one clear error."""
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or not LOST.search(str(error)):
                raise
            # What is left of the connections may hang the process for good: a thread outside Python ends it
            # then.
            nowhere = open(os.devnull, "w")  # noqa: SIM115
            faulthandler.dump_traceback_later(EXIT_TIMEOUT, exit=True, file=nowhere)
            reason = str(error).splitlines()[0][:120]
            raise LostRank(
                f"rank {self.rank}: another process of this training has gone;"
                f" give the same command again to go on from the last checkpoint ({reason})"
            ) from None


def _count(name: str, usual: int) -> int:
    """A number that `torchrun` puts into the environment."""
    text = os.environ.get(name, str(usual))
    least = 1 if name == "WORLD_SIZE" else 0
    if not (text.isascii() and text.isdecimal() and least <= int(text[:20]) < 1 << 31):
        raise InputError(f"{name} must be a whole number, as torchrun sets it, not {text[:40]!r}")
    return int(text)


def _connect(rank: int, size: int, backend: str) -> None:
    """Join the process group; one clear error if the ranks do not meet."""
    on_one_machine = os.environ.get("LOCAL_WORLD_SIZE") == str(size)
    try:
        store = _local_store(rank, size) if on_one_machine else None
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=JOIN_TIMEOUT)
    except (RuntimeError, ValueError, KeyError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise GlassError(f"rank {rank}: the processes did not find each other ({reason})") from None


def _local_store(rank: int, size: int) -> Any:
    """A meeting point for the ranks of one machine, on loopback (torch's own listens on all interfaces)."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    port = int(os.environ["MASTER_PORT"])
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return None  # torchrun has one open already
    if rank:
        return TCPStore(LOOPBACK, port, size, is_master=False)
    listener = socket.create_server((LOOPBACK, port))
    return TCPStore(
        LOOPBACK, port, size, is_master=True, master_listen_fd=listener.detach(), wait_for_workers=False
    )
