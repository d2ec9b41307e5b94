"""autosp.check on one device: simulated ranks of small models of many kinds, where a CPU may differ
from a GPU (which kernels of attention there are, flex_attention's backward, exchanges on a GPU).

Started by measure.py. Prints a line that begins with "@" for each model.
"""

import argparse
import contextlib
import io
import json
import sys
import time
from pathlib import Path

import old_torch  # noqa: F401 (before autosp)
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "zoo"))

import architectures  # noqa: E402
import autosp  # noqa: E402

RANKS = 4
# (architecture, its attention): fused, flex and written-out attention, windows, experts, scans.
MODELS = {
    "llama": ("llama", "sdpa"),
    "llama, flex": ("llama", "flex_attention"),
    "mistral, flex": ("mistral", "flex_attention"),
    "gemma2": ("gemma2", "eager"),
    "bloom": ("bloom", "eager"),
    "mixtral": ("mixtral", "sdpa"),
    "deepseek_v3": ("deepseek_v3", "sdpa"),
    "mamba2": ("mamba2", None),
    "recurrent_gemma": ("recurrent_gemma", "sdpa"),
}


def check(name: str, attention: str | None, length: int, device: str) -> dict:
    model = architectures.tiny_model(name)
    if attention:
        model.set_attn_implementation(attention)
    inputs = {k: x.to(device) for k, x in architectures.inputs(model, length).items()}
    began = time.perf_counter()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            report = autosp.check(model.to(device), inputs, sp=RANKS)
    except autosp.Mismatch as mismatch:
        report = mismatch.report
    worst = max(report.rows, key=lambda row: row.error)
    return {
        "parity": report.parity,
        "worst": worst.error,
        "of": worst.name,
        "seconds": time.perf_counter() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--device", required=True)
    args = parser.parse_args()
    for model in args.models:
        for length in (64, 61):
            torch._dynamo.reset()
            try:
                answer = check(*MODELS[model], length, args.device)
            except Exception as error:  # the others go on
                answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
            print("@" + json.dumps({"model": model, "length": length} | answer), flush=True)


if __name__ == "__main__":
    main()
