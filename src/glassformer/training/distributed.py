"""One process, or many that train one model together: the same loop, the same numbers.

Under `torchrun` every process is a rank. Each takes its part of every batch; gradients are averaged over all (DDP), or
parameters, gradients and optimizer are also divided among them (FSDP). Nothing but numbers travels: no pickle.
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

from glassformer.errors import GlassError

T = TypeVar("T")
LOOPBACK = "127.0.0.1"
LOST = re.compile(
    "gloo|nccl|connection|timed out|timeout", re.IGNORECASE
)  # how torch says that somebody does not answer
LAST_WORDS = 5  # seconds to end in good order after a loss
MEETING = timedelta(hours=1)  # until everybody is there: somebody may still be tokenizing
PATIENCE = 60  # seconds until a rank that no longer answers ends the others


class LostRank(GlassError):
    """Another process of a training that runs in several has gone."""


@dataclass
class World:
    """Who trains: rank `rank` of `size`. One alone needs no network."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @classmethod
    def join(cls, device: str = "cpu", patience: float = PATIENCE) -> "World":
        """The world that `torchrun` describes in the environment; a world of one without it."""
        size = int(os.environ.get("WORLD_SIZE", 1))
        rank = int(os.environ.get("RANK", 0)) if size > 1 else 0
        where = torch.device(device)
        if where.type == "cuda" and size > 1:
            where = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
            torch.cuda.set_device(where)
        if size > 1:
            backend = "nccl" if where.type == "cuda" else "gloo"
            try:
                store = _local_store(rank, size) if os.environ.get("LOCAL_WORLD_SIZE") == str(size) else None
                dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=MEETING)
            except (RuntimeError, ValueError, KeyError, OSError) as error:
                reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
                raise GlassError(f"rank {rank}: the processes did not find each other ({reason})") from None
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=patience))  # now that all are here
        return cls(rank, size, where)

    @property
    def first(self) -> bool:
        """Whether this is the rank that speaks and saves."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """This rank's part of a batch."""
        return items[self.rank * len(items) // self.size : (self.rank + 1) * len(items) // self.size]

    def wrap(self, model: nn.Module, parallel: str) -> nn.Module:
        """The model as it is called in training."""
        if self.size == 1:
            return model
        if parallel == "fsdp":
            from torch.distributed.fsdp import fully_shard

            for blocks in (module for module in model.modules() if isinstance(module, nn.ModuleList)):
                for block in blocks:
                    fully_shard(block)
            fully_shard(model)
            return model
        return nn.parallel.DistributedDataParallel(model)

    def together(self, model: nn.Module, *, last: bool) -> AbstractContextManager[None]:
        """Gradients of the parts of a step are sent together, with the last of them."""
        if last or not isinstance(model, nn.parallel.DistributedDataParallel):
            return nullcontext()
        return model.no_sync()

    def settle(self, model: nn.Module) -> None:
        """After a forward pass without a backward one: let go of parts that belong to other ranks."""
        if self.size > 1:
            from torch.distributed.fsdp import FSDPModule

            for module in model.modules():
                if isinstance(module, FSDPModule):
                    module.reshard()

    def sum(self, *values: float) -> list[float]:
        """Each value, added up over all ranks."""
        if self.size == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(numbers)
        return [float(number) for number in numbers]

    def whole(self, value: Tensor) -> Tensor:
        """A tensor with all its parts, on the CPU of rank 0; every rank must ask at once."""
        full = value.full_tensor() if isinstance(value, DTensor) else value
        return full.detach().cpu() if self.first else torch.empty(0)  # the others only took part

    def spread(self, value: Tensor, like: Tensor) -> Tensor:
        """Rank 0's tensor, on every rank, divided as `like` is."""
        value = value.to(self.device)
        if isinstance(like, DTensor) and value.shape == like.shape:
            return distribute_tensor(value, like.device_mesh, like.placements)
        if self.size > 1:
            dist.broadcast(value, 0)
        return value

    def rows(self, value: Tensor) -> Tensor:
        """The tensors of all ranks, one under the other, on the CPU."""
        if self.size == 1:
            return value[None].cpu()
        parts = [torch.empty_like(value, device=self.device) for _ in range(self.size)]
        dist.all_gather(parts, value.to(self.device))
        return torch.stack(parts).cpu()

    def tell(self, text: str) -> str:
        """Rank 0's text, on every rank."""
        if self.size == 1:
            return text
        raw = (
            torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).to(self.device)
            if self.first
            else None
        )
        length = torch.tensor([0 if raw is None else len(raw)], device=self.device)
        dist.broadcast(length, 0)
        raw = torch.empty(int(length), dtype=torch.uint8, device=self.device) if raw is None else raw
        dist.broadcast(raw, 0)
        return bytes(raw.cpu().tolist()).decode()

    @contextmanager
    def company(self) -> Iterator[None]:
        """While others are needed: an error that says so if one of them goes."""
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or not LOST.search(str(error)):
                raise
            # What is left of the connections may never let go of the process: a thread outside Python ends it if need be.
            faulthandler.dump_traceback_later(LAST_WORDS, exit=True, file=open(os.devnull, "w"))  # noqa: SIM115
            raise LostRank(
                f"rank {self.rank}: another process of this training has gone; give the same command again to go on from the"
                f" last checkpoint ({str(error).splitlines()[0][:120]})"
            ) from None

    def leave(self) -> None:
        """End the connections."""
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()


def _local_store(rank: int, size: int) -> Any:
    """A meeting point for ranks of one machine, which listens on loopback alone (torch's own listens everywhere)."""
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
