"""OpenVINO as a peer: a stateful graph, its weights compressed to int8 or int4 by nncf; the rest as the
library chooses.
"""

import json
from pathlib import Path
from typing import Any

from adapter import main, read


def prepare(checkpoint: Path, target: Path, kind: str) -> None:
    """Build the graph, compress its weights and save it."""
    import nncf
    import openvino as ov

    config, weights = read(checkpoint)
    modes: dict[str, dict[str, Any]] = {
        "int8": {"mode": nncf.CompressWeightsMode.INT8_ASYM},
        "int4": {"mode": nncf.CompressWeightsMode.INT4_SYM, "group_size": 128},
    }
    model = nncf.compress_weights(graph(config, weights), **modes[kind])
    ov.save_model(model, target / "model.xml", compress_to_fp16=False)
    (target / "size.json").write_text(json.dumps(config["vocab_size"]))


def graph(config: dict[str, Any], weights: dict[str, Any]) -> Any:
    """GPT-2 as its exporters write it: keys and values are states, attention is one node, the last token
    alone has logits.
    """
    import numpy as np
    import openvino as ov
    from openvino import opset15 as op

    D, H = config["n_embd"], config["n_head"]
    ids = op.parameter([-1, -1], np.int64, name="ids")
    positions = op.parameter([1, -1], np.int64, name="positions")
    order = op.parameter([-1], np.int32, name="order")
    sinks: list[Any] = []

    def ints(*values: int) -> Any:
        return op.constant(np.array(values, np.int64))

    def norm(x: Any, name: str) -> Any:
        x = op.mvn(x, ints(-1), True, config["layer_norm_epsilon"], "INSIDE_SQRT")
        return op.add(
            op.multiply(x, op.constant(weights[f"{name}.weight"])), op.constant(weights[f"{name}.bias"])
        )

    def linear(x: Any, name: str) -> Any:
        matrix = op.constant(np.ascontiguousarray(weights[f"{name}.weight"].T))
        return op.add(op.matmul(x, matrix, False, True), op.constant(weights[f"{name}.bias"]))

    def grown(x: Any, name: str) -> Any:
        nothing = op.broadcast(op.constant(np.float32(0)), op.concat([rows, ints(H, 0, D // H)], 0))
        past = op.read_value(nothing, name, ov.Type.f32, ov.PartialShape([-1, H, -1, D // H]))
        now = op.concat([op.gather(past, order, op.constant(np.int32(0))), x], 2)
        sinks.append(op.assign(now, name))
        return now

    rows = op.gather(op.shape_of(ids, "i64"), ints(0), op.constant(np.int32(0)))
    table = op.constant(weights["wte.weight"])
    axis = op.constant(np.int32(0))
    x = op.add(op.gather(table, ids, axis), op.gather(op.constant(weights["wpe.weight"]), positions, axis))
    for i in range(config["n_layer"]):
        parts = op.split(
            linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn"), op.constant(np.int32(2)), 3
        ).outputs()
        heads = [
            op.transpose(op.reshape(part, ints(0, 0, H, D // H), True), ints(0, 2, 1, 3)) for part in parts
        ]
        keys, values = grown(heads[1], f"key {i}"), grown(heads[2], f"value {i}")
        mixed = op.scaled_dot_product_attention(heads[0], keys, values, causal=True)
        mixed = op.reshape(op.transpose(mixed, ints(0, 2, 1, 3)), ints(0, 0, D), True)
        x = op.add(x, linear(mixed, f"h.{i}.attn.c_proj"))
        inner = op.gelu(linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"), "tanh")
        x = op.add(x, linear(inner, f"h.{i}.mlp.c_proj"))
    last = op.gather(x, ints(-1), op.constant(np.int32(1)))
    logits = op.matmul(norm(last, "ln_f"), table, False, True)
    return ov.Model([op.result(logits)], sinks, [ids, positions, order], "gpt2")


class Loaded:
    """A compiled model with one stream."""

    def __init__(self, folder: Path, kind: str, threads: int) -> None:
        import openvino as ov

        self.vocab = json.loads((folder / "size.json").read_text())
        options: dict[str, Any] = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
        }
        options["CACHE_DIR"] = str(folder / "cache")  # the second start is quicker
        self.model = ov.Core().compile_model(folder / "model.xml", "CPU", options)
        self.rows = 0

    def room(self, rows: int, length: int) -> None:
        """New states for another number of rows: those of fewer rows, once used, do not fit more rows."""
        if self.rows != rows:
            self.request, self.rows = self.model.create_infer_request(), rows

    def run(self, ids: list[list[int]], new: int) -> list[list[int]]:
        """Inputs and outputs are shared with the library, not copied."""
        import numpy as np

        self.request.reset_state()
        order, step, made = np.arange(len(ids), dtype=np.int32), np.array(ids), []
        start = 0
        for _ in range(new):
            positions = np.arange(start, start + step.shape[1])[None]
            out = self.request.infer([step, positions, order], share_inputs=True, share_outputs=True)
            start += step.shape[1]
            step = out[0].argmax(-1)  # (B, 1)
            made.append(step)
        rows: list[list[int]] = np.concatenate(made, 1).tolist()
        return rows


if __name__ == "__main__":
    main(prepare, Loaded)
