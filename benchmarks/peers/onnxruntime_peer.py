"""ONNX Runtime as a peer: a graph with its own attention node, weights in int8 and activations quantized as
they come.
"""

import json
from pathlib import Path
from typing import Any

from adapter import main, read


def prepare(checkpoint: Path, target: Path, kind: str) -> None:
    """Build the graph, quantize it with the library's tool and let the library optimize it for this machine."""
    import onnx
    import onnxruntime as peer
    from onnxruntime.quantization import QuantType, quantize_dynamic

    config, weights = read(checkpoint)
    plain, small = target / "plain.onnx", target / "small.onnx"
    onnx.save(graph(config, weights), plain)
    kinds = {"int8": QuantType.QInt8}
    floats = {"DefaultTensorType": onnx.TensorProto.FLOAT}
    quantize_dynamic(
        plain, small, weight_type=kinds[kind], per_channel=True, reduce_range=True, extra_options=floats
    )
    options = peer.SessionOptions()
    options.optimized_model_filepath = str(target / "model.onnx")
    options.log_severity_level = 3
    peer.InferenceSession(small, options, providers=["CPUExecutionProvider"])
    plain.unlink()
    small.unlink()
    (target / "size.json").write_text(
        json.dumps([config["n_layer"], config["n_head"], config["n_embd"], config["vocab_size"]])
    )


def graph(config: dict[str, Any], weights: dict[str, Any]) -> Any:
    """GPT-2 with keys and values as inputs and outputs; the last token alone has logits, and only the
    likeliest id comes out.
    """
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    D, H = config["n_embd"], config["n_head"]
    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(name: str, values: Any) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def node(kind: str, inputs: list[str], outputs: list[str] | None = None, **options: Any) -> str:
        outputs = outputs or [f"{kind} {len(nodes)}"]
        nodes.append(helper.make_node(kind, inputs, outputs, name=outputs[0], **options))
        return outputs[0]

    def norm(x: str, name: str) -> str:
        scale, shift = (constant(f"{name}.{part}", weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        return node("LayerNormalization", [x, scale, shift], axis=-1, epsilon=config["layer_norm_epsilon"])

    def linear(x: str, name: str) -> str:
        product = node("MatMul", [x, constant(f"{name}.weight", weights[f"{name}.weight"])])
        return node("Add", [product, constant(f"{name}.bias", weights[f"{name}.bias"])])

    tokens = node("Gather", [constant("wte", weights["wte.weight"]), "ids"])
    x = node("Add", [tokens, node("Gather", [constant("wpe", weights["wpe.weight"]), "positions"])])
    cache = [f"{part} {i}" for i in range(config["n_layer"]) for part in ("key", "value")]
    for i in range(config["n_layer"]):
        parts = linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn")
        mixed = node(
            "GroupQueryAttention",
            [parts, "", "", f"key {i}", f"value {i}", "last", "total"],
            [f"mixed {i}", f"new key {i}", f"new value {i}"],
            domain="com.microsoft", num_heads=H, kv_num_heads=H,
        )  # fmt: skip
        x = node("Add", [x, linear(mixed, f"h.{i}.attn.c_proj")])
        inner = node("Gelu", [linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")], approximate="tanh")
        x = node("Add", [x, linear(inner, f"h.{i}.mlp.c_proj")])
    last = node("Gather", [x, constant("end", np.array([-1]))], axis=1)
    logits = node("MatMul", [norm(last, "ln_f"), constant("head", weights["wte.weight"].T)])
    node("ArgMax", [logits], ["chosen"], axis=-1, keepdims=0)

    def value(name: str, kind: int, shape: list[Any]) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    inputs = [value("ids", TensorProto.INT64, ["B", "T"]), value("positions", TensorProto.INT64, [1, "T"])]
    inputs += [value("last", TensorProto.INT32, ["B"]), value("total", TensorProto.INT32, [])]
    inputs += [value(name, TensorProto.FLOAT, ["B", H, "S", D // H]) for name in cache]
    outputs = [value("chosen", TensorProto.INT64, ["B", 1])]
    outputs += [value(f"new {name}", TensorProto.FLOAT, ["B", H, "S", D // H]) for name in cache]
    versions = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    whole = helper.make_graph(nodes, "gpt2", inputs, outputs, constants)
    return helper.make_model(whole, opset_imports=versions, ir_version=10)


class Loaded:
    """A session, and keys and values that it changes in place."""

    def __init__(self, folder: Path, kind: str, threads: int) -> None:
        import onnxruntime as peer

        self.layers, self.heads, self.width, self.vocab = json.loads((folder / "size.json").read_text())
        options = peer.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.graph_optimization_level = peer.GraphOptimizationLevel.ORT_DISABLE_ALL  # `prepare` did it
        self.session = peer.InferenceSession(
            folder / "model.onnx", options, providers=["CPUExecutionProvider"]
        )
        self.value = peer.OrtValue.ortvalue_from_numpy
        self.size = (0, 0)

    def room(self, rows: int, length: int) -> None:
        """Keys and values of all layers, bound as inputs and as outputs."""
        import numpy as np

        if self.size == (rows, length):
            return
        self.binding, self.size = self.session.io_binding(), (rows, length)
        names = [f"{part} {i}" for i in range(self.layers) for part in ("key", "value")]
        shape = (rows, self.heads, length, self.width // self.heads)
        self.cache = {
            name: self.value(np.zeros(shape, np.float32)) for name in names
        }  # a binding does not keep what it binds
        for name, held in self.cache.items():
            self.binding.bind_ortvalue_input(name, held)
            self.binding.bind_ortvalue_output(f"new {name}", held)

    def run(self, ids: list[list[int]], new: int) -> list[list[int]]:
        """What comes out goes in again without a copy."""
        import numpy as np

        rows, length, made = len(ids), len(ids[0]), []
        step, start = self.value(np.array(ids)), 0
        for _ in range(new):
            given = {"ids": step, "positions": self.value(np.arange(start, length)[None])}
            given["last"] = self.value(np.full(rows, length - 1, np.int32))
            given["total"] = self.value(np.array(length, np.int32))
            for name, held in given.items():
                self.binding.bind_ortvalue_input(name, held)
            made.append(np.zeros((rows, 1), np.int64))
            step = self.value(made[-1])
            self.binding.bind_ortvalue_output("chosen", step)
            self.session.run_with_iobinding(self.binding)
            start, length = length, length + 1
        out: list[list[int]] = np.concatenate(made, 1).tolist()
        return out


if __name__ == "__main__":
    main(prepare, Loaded)
