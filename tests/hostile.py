"""A folder of a stranger, whose files run where Python looks for modules there."""

from __future__ import annotations

from pathlib import Path

_MODULES = (
    "cloudpickle", "compileall", "dask", "datasets", "distributed", "ensurepip", "httpx", "huggingface_hub",
    "jax", "msgspec", "multiprocessing", "numba", "numpy", "pickle", "pip", "polars", "sciscidata", "sciscirl",
    "sitecustomize", "skyrl", "submitit", "torch", "transformers", "usercustomize", "uv", "uvicorn", "venv",
)  # fmt: skip


def make_hostile(folder: Path) -> Path:
    """Fill a folder with modules that leave a mark; return the file that then names them."""
    folder.mkdir()
    mark = folder.parent / "mark"
    for name in _MODULES:
        code = (
            f"with open({str(mark)!r}, 'a') as file:\n    file.write(__name__ + ' ')\nraise RuntimeError('executed')\n"
        )
        (folder / f"{name}.py").write_text(code)
    return mark
