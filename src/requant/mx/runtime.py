"""``mx.runtime``: which of MXNet's build features are there, for scripts that ask."""

from __future__ import annotations

#: Features of MXNet's build that stand for something this library does: sizes beyond 2^31, int8 on the CPU, pictures.
_ON = ("INT64_TENSOR_SIZE", "MKLDNN", "OPENCV")
_OFF = (
    "CUDA",
    "CUDNN",
    "NCCL",
    "TENSORRT",
    "BLAS_MKL",
    "OPENMP",
    "DIST_KVSTORE",
    "CXX14",
    "PROFILER",
    "DEBUG",
    "TVM_OP",
)


class Feature:
    """A name, and whether it is there."""

    def __init__(self, name: str, enabled: bool) -> None:
        self.name, self.enabled = name, enabled

    def __repr__(self) -> str:
        return f"{'✔' if self.enabled else '✖'} {self.name}"


class Features(dict[str, Feature]):
    """All features by name."""

    def __init__(self) -> None:
        super().__init__({n: Feature(n, n in _ON) for n in sorted({*_ON, *_OFF})})

    def is_enabled(self, feature_name: str) -> bool:
        """Whether a feature is there; False for one that is not known."""
        found = self.get(feature_name.upper())
        return found is not None and found.enabled


def feature_list() -> list[Feature]:
    """All features."""
    return list(Features().values())
