"""How a server runs: where it listens, who may ask, and how much of everything."""

from dataclasses import dataclass
from pathlib import Path

MEGABYTE = 1 << 20
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a server; the limits are those of docs/serving.md."""

    host: str = "127.0.0.1"
    port: int = 8000
    key: str | None = None
    allow_hosts: tuple[str, ...] = ()  # NAME or NAME:PORT, as a browser or a proxy sends it
    session: str | None = None  # what the studio's cookie holds, which is as good as the key
    public: frozenset[str] = frozenset()  # paths that need no key
    slots: int = 8
    queue: int = 64
    queue_tokens: int = 65_536  # of texts that wait: those of their prompts, and those that may follow
    budget: int = 256  # tokens that a step reads at most
    log_text: bool = False
    json_logs: bool = False
    most_body: int = 4 * MEGABYTE
    home: Path | None = None  # where uploaded files and jobs are kept; without it neither is offered
    device: str = "cpu"  # of jobs
    revision: str | None = None  # of the models that jobs begin with
    most_file: int = 64 * MEGABYTE  # bytes of an uploaded file
    most_files: int = 1024 * MEGABYTE  # bytes of all of them
    most_results: int = 16  # models that jobs made, which are served
    most_headers: int = 64 * 1024  # bytes of a request's headers
    slow_sender: float = 30.0  # seconds until a request must have arrived
    slow_reader: float = 60.0  # seconds that a client may leave what was sent to it
    longest: float = 300.0  # seconds of a request
    patience: float = 60.0  # seconds until it has its turn
    ping: float = 15.0  # seconds without an event, after which a stream says that it is alive
    grace: float = 30.0  # seconds that running requests have when the server stops

    @property
    def cookie(self) -> str:
        """The name of the studio's cookie: browsers send those of one port to the others of a host, too."""
        return f"glass_studio_{self.port}"

    def hosts(self) -> frozenset[str]:
        """The values of the header Host that are answered, in lower case."""
        names = [*LOOPBACK, *self.allow_hosts]
        found = set()
        for name in map(str.lower, names):
            if _has_port(name):
                found.add(name)
                continue
            found.add(f"{name}:{self.port}")
            if self.port == 80 or name not in LOOPBACK:  # behind a proxy, the port may be the scheme's own
                found.add(name)
        return frozenset(found)

    def origins(self) -> frozenset[str]:
        """The origins of pages that may ask: those that this server, or a proxy before it, sends."""
        own = {f"http://{host}" for host in self.hosts()}
        named = [name.lower() for name in self.allow_hosts]
        return frozenset(own | {f"https://{name}" for name in named})


def _has_port(name: str) -> bool:
    """Whether a host name ends with a port; an IPv6 address has colons in brackets."""
    return ":" in name.rpartition("]")[2]
