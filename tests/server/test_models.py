"""What is served, and how it is."""

from serving import Running, until

import glassformer as gf


def test_models(server: Running) -> None:
    """The list, and one of them with what can be asked about it."""
    listed = server.get("/v1/models").json()
    assert listed["object"] == "list"
    ids = [one["id"] for one in listed["data"]]
    assert ids == ["tiny", "long", "a/DialoGPT-tiny", "storyteller"]
    one = server.get("/v1/models/a/DialoGPT-tiny").json()
    assert {"id", "object", "created", "owned_by"} <= one.keys()
    assert one["max_model_len"] == 64
    assert one["meta"]["chat_form"] == "turns"
    assert (one["meta"]["n_layer"], one["meta"]["n_head"], one["meta"]["n_embd"]) == (2, 3, 24)
    teller = server.get("/v1/models/storyteller").json()["meta"]
    assert teller["engine"] == "native int8"
    assert teller["n_params"] == gf.load("storyteller").net.config.parameters
    assert {"attention", "lens", "saliency", "neurons", "top"} <= set(one["explain"]["questions"])
    assert not {"curve", "diff"} & set(one["explain"]["questions"])


def test_health_and_version(server: Running) -> None:
    """Health names no model; a proxy may ask without wanting a body."""
    for path in ("/health", "/v1/health"):
        head = server.client.head(path)
        assert head.status_code == 200
        assert not head.content
    assert server.get("/health").json() == {"status": "ok"}
    assert server.get("/v1/health").status_code == 200
    assert server.get("/version").json()["name"] == "glassformer"


def test_made_up_paths_do_not_fill_the_metrics(server: Running) -> None:
    """Requests are counted by route, not by path: anybody can make up any number of paths."""
    for n in range(5):
        server.get(f"/made-up-{n}")
        server.get(f"/v1/models/made-up-{n}")
        server.get(f"/made-up-{n}", headers={"Host": "evil.example"})
    assert "made-up" not in server.get("/metrics").text


def test_metrics(server: Running) -> None:
    """Prometheus' text: counters grow by what was done."""
    before = server.state.metrics.value("generation_tokens_total", model="tiny")
    server.post("/v1/completions", {"model": "tiny", "prompt": "Once", "max_tokens": 3, "ignore_eos": True})
    assert server.state.metrics.value("generation_tokens_total", model="tiny") == before + 3
    answer = server.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert f'glass_generation_tokens_total{{model="tiny"}} {before + 3:g}' in lines
    assert any(
        line.startswith('glass_time_to_first_token_seconds_bucket{model="tiny",le="+Inf"}') for line in lines
    )
    assert any(line.startswith("glass_build_info{version=") for line in lines)
    steps = server.state.library.find("tiny").runner.step_times.count
    assert f'glass_step_seconds_count{{model="tiny"}} {steps}' in lines
    assert f'glass_batch_size_bucket{{model="tiny",le="1"}} {steps}' in lines
    assert f'glass_batch_size_count{{model="tiny"}} {steps}' in lines
    assert any(line.startswith('glass_texts_total{finish_reason="length",model="tiny"}') for line in lines)
    server.state.metrics.count("insides_bytes_total", 12_345_678)
    total = server.state.metrics.value("insides_bytes_total")
    assert (
        f"glass_insides_bytes_total {int(total)}" in server.get("/metrics").text.splitlines()
    )  # every digit
    before = server.state.metrics.value("rejected_total", reason="forbidden")
    server.get("/metrics", headers={"Origin": "http://evil.example"})
    until(lambda: server.state.metrics.value("rejected_total", reason="forbidden") == before + 1)
    bound = server.state.library.find("storyteller").runner.cache_bytes
    (used,) = [line for line in lines if line.startswith('glass_kv_bytes_used{model="storyteller"}')]
    assert 0 <= float(used.rpartition(" ")[2]) <= bound
    for line in lines:
        assert line.startswith(("# HELP glass_", "# TYPE glass_", "glass_"))
        if not line.startswith("#"):
            float(line.rpartition(" ")[2])
    counted = [line for line in lines if line.startswith("glass_requests_total")]
    assert any('endpoint="/v1/completions",status="200"' in line for line in counted)
