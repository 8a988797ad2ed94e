"""While the wheel is made: compile the native engine, if there is a compiler. Without one the package works
on torch.
"""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ENGINE = Path("src") / "glassformer" / "engine"


class EngineHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        engine = Path(self.root) / ENGINE
        if runpy.run_path(str(engine / "build.py"))["build"](engine / "built"):
            build_data["pure_python"], build_data["infer_tag"] = False, True
            build_data["artifacts"].append(f"/{ENGINE.as_posix()}/built/*.so")
