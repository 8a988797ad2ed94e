"""Models that are known by name: where they live, and what their weights hash to."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """A published checkpoint, pinned to one revision of its repository."""

    repository: str
    revision: str
    sha256: str  # of model.safetensors
    size: int  # of the same file, in bytes


KNOWN = {
    "gpt2": Known(
        "openai-community/gpt2",
        "607a30d783dfa663caf39e06633721c8d4cfcd7e",
        "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707",
        548_105_171,
    ),
    "gpt2-medium": Known(
        "openai-community/gpt2-medium",
        "6dcaa7a952f72f9298047fd5137cd6e4f05f41da",
        "fc5a354a19255ad494f3d71549390baca1ccf61d1d822b9408971705c687c9cd",
        1_519_984_962,
    ),
    "gpt2-large": Known(
        "openai-community/gpt2-large",
        "32b71b12589c2f8d625668d2335a01cac3249519",
        "5f47f3e12f91cd33b662ce7e433b6150ad5512b5884a2cee961b50e9c3bbebce",
        3_247_159_078,
    ),
    "gpt2-xl": Known(
        "openai-community/gpt2-xl",
        "15ea56dee5df4983c59b2538573817e1667135e2",
        "0f8b28eb05a8075f48b61b6f35332978c74fc7763fa9fb4051a1c30511736a6a",
        6_431_829_964,
    ),
    "distilgpt2": Known(
        "distilbert/distilgpt2",
        "2290a62682d06624634c1f46a6ad5be0f47f38aa",
        "e1ff18884359fe8beb795a5f414feb85a6ce3d929ad019c0d958c039d2b94a1b",
        352_824_413,
    ),
}


def by_repository(repository: str) -> Known | None:
    """The known model that lives in a repository."""
    return next((known for known in KNOWN.values() if known.repository == repository), None)
