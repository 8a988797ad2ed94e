"""While the wheel is made: compile the native engine, if there is a compiler, and take the studio's page
along, if it was built. Without them the package works on torch, and `glass studio` names the command to run.
"""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ENGINE = Path("src") / "glassformer" / "engine"
PAGE = Path("src") / "glassformer" / "server" / "static"


class EngineHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        engine = Path(self.root) / ENGINE
        if runpy.run_path(str(engine / "build.py"))["build"](engine / "built"):
            build_data["pure_python"], build_data["infer_tag"] = False, True
            build_data["artifacts"].append(f"/{ENGINE.as_posix()}/built/*.so")
        if (Path(self.root) / PAGE / "index.html").is_file():
            build_data["artifacts"].append(f"/{PAGE.as_posix()}/**")
