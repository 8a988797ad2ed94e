"""The servers that are compared, each in a process of its own on a free port of loopback."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from checkpoints import RUNS
from sides import environment

HERE = Path(__file__).parent
PEER = "llama-cpp-python"  # its source distribution carries that of llama.cpp
LLAMA = RUNS / "llama-server"
SWITCHES = (
    "CMAKE_BUILD_TYPE=Release",
    "BUILD_SHARED_LIBS=OFF",
    "LLAMA_BUILD_UI=OFF",
    "LLAMA_USE_PREBUILT_UI=OFF",
    "LLAMA_OPENSSL=OFF",
    "LLAMA_BUILD_TESTS=OFF",
    "LLAMA_BUILD_EXAMPLES=OFF",
    "LLAMA_BUILD_APP=OFF",
)
START = 300  # seconds until a server must answer


class Server:
    """A child that serves, and what it takes of the machine."""

    def __init__(self, command: list[str], port: int, *, threads: int, log: Path) -> None:
        self.port = port
        settings = os.environ | {"OMP_NUM_THREADS": str(threads), "GLASSFORMER_HOME": str(RUNS / "home")}
        settings["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        with log.open("wb") as output:
            self.child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=settings)
        self._wait(log)

    def _wait(self, log: Path) -> None:
        end = time.monotonic() + START
        while time.monotonic() < end:
            if self.child.poll() is not None:
                sys.exit(f"{log}: a server ended early:\n{log.read_text()[-2000:]}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.2)
        self.end()
        sys.exit(f"{log}: a server did not start in {START} seconds")

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def size(self) -> dict[str, float]:
        """Resident memory in MB, open files, threads."""
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        files = len(os.listdir(f"/proc/{self.child.pid}/fd"))
        return {
            "memory": int(fields["VmRSS"].split()[0]) / 1024,
            "files": files,
            "threads": int(fields["Threads"]),
        }

    def end(self) -> None:
        """Stop it."""
        self.child.terminate()
        try:
            self.child.wait(60)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def ours(folder: Path, *, slots: int, threads: int) -> Server:
    """`glass serve`, with the native engine in int8."""
    port = free_port()
    command = [sys.executable, "-m", "glassformer", "serve", "-m", f"gpt2={folder.resolve()}"]
    command += ["--engine", "native", "--slots", str(slots), "--port", str(port), "--offline", "--json"]
    return Server(command, port, threads=threads, log=RUNS / "serve-ours.log")


def theirs(folder: Path, *, slots: int, threads: int) -> Server:
    """llama.cpp's server, with as many slots of the same context."""
    port = free_port()
    file = gguf(folder)
    context = json.loads((folder / "config.json").read_text())["n_positions"]
    command = [str(binary("llama-server").resolve()), "-m", str(file), "--alias", "gpt2"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--offline"]
    command += ["-t", str(threads), "-tb", str(threads), "-np", str(slots), "-c", str(slots * context)]
    return Server(command, port, threads=threads, log=RUNS / "serve-llama.log")


def binary(name: str) -> Path:
    """A program of llama.cpp, built the first time (many minutes)."""
    found = LLAMA / "build" / "bin" / name
    if not found.is_file():
        source = sources()
        build = str(LLAMA / "build")
        print(f"building {name} (minutes)", file=sys.stderr, flush=True)
        switches = [f"-D{one}" for one in SWITCHES]
        with (LLAMA / "build.log").open("ab") as log:
            made: dict[str, Any] = {"check": True, "stdout": log, "stderr": log}
            subprocess.run(["cmake", "-S", str(source), "-B", build, *switches], **made)
            subprocess.run(["cmake", "--build", build, "--target", name, "-j", str(os.cpu_count())], **made)
    return found


def sources() -> Path:
    """llama.cpp's sources, as the source distribution of its Python binding carries them."""
    LLAMA.mkdir(parents=True, exist_ok=True)
    if not (found := list(LLAMA.glob("llama_cpp_python-*/vendor/llama.cpp/CMakeLists.txt"))):
        print(f"fetching the sources of {PEER}", file=sys.stderr, flush=True)
        # Of this package alone: what builds it would be built from sources, too, which takes many minutes.
        fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-binary", PEER, "--no-deps"]
        subprocess.run([*fetch, "-d", str(LLAMA), PEER], check=True)
        (packed,) = LLAMA.glob("llama_cpp_python-*.tar.gz")
        with tarfile.open(packed) as archive:
            archive.extractall(LLAMA, filter="data")
        found = list(LLAMA.glob("llama_cpp_python-*/vendor/llama.cpp/CMakeLists.txt"))
    return found[0].parent


def version() -> str:
    """Of llama.cpp's sources."""
    return f"{PEER} {sources().parents[1].name.rpartition('-')[2]}"


def gguf(folder: Path) -> Path:
    """The model as llama.cpp reads it: q8_0, with GPT-2's vocabulary."""
    file = RUNS / "targets" / f"{folder.name}-q8_0.gguf"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        plain = file.with_suffix(".plain")
        python = environment(RUNS / "env" / "gguf", "gguf")
        subprocess.run([str(python), str(HERE / "plain_gguf.py"), str(folder), str(plain)], check=True)
        part = file.with_suffix(".part")
        quantize = [str(binary("llama-quantize").resolve()), str(plain), str(part), "q8_0"]
        subprocess.run(quantize, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        part.rename(file)
        plain.unlink()
    return file


def clean() -> None:
    """Forget the home of an earlier run: the code may have changed since."""
    shutil.rmtree(RUNS / "home", ignore_errors=True)
