"""Files of tensors that a program makes itself."""

from __future__ import annotations

from os import fsdecode
from typing import TYPE_CHECKING

from . import _core
from ._metadata import metadata_texts
from ._numbers import shard_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ._checkpoint import Path

# bytes that are copied at a time
_PIECE = 1 << 20


class TensorWriter:
    """Writes tensors one by one to a file, to shards, or to a bucket: no more than one piece of 1 MiB is in memory besides what
    the program has. Names, dtypes and shapes are given first, as they are in front of the data.

        >>> import numpy as np
        >>> shapes = {"w": ("F32", (64, 64)), "b": ("F16", (64,))}
        >>> with anamnesis.TensorWriter("out.safetensors", shapes, metadata={"format": "pt"}) as out:
        ...     for name in out.order:
        ...         dtype, shape = shapes[name]
        ...         out.write(name, np.zeros(shape, {"F32": np.float32, "F16": np.float16}[dtype]))
        >>> out.files
        ['out.safetensors']

    ``tensors``: by name, the dtype (``BF16``, of safetensors) or block type (``Q8_0``, of ggml) and the shape, outermost axis
    first. ``container``: ``safetensors``, ``gguf``, ``npz`` or ``npy``; by default the ending of ``out`` decides. Keys of
    ``metadata`` may have a type of a GGUF behind a colon (``"x.size:u32"``), which values other than texts need. ``shard_size``
    in bytes makes ``out`` a directory of shards and their index. ``void``: floats that NumPy does not have (BF16, FP8) are written to
    ``npz`` and ``npy`` as items without a type, which ``void_as`` reads. The files appear at the end of the ``with`` block; after an
    exception there are none.
    """

    def __init__(
        self,
        out: Path,
        tensors: Mapping[str, tuple[str, Sequence[int]]],
        *,
        container: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        shard_size: int | None = None,
        overwrite: bool = False,
        void: bool = False,
    ) -> None:
        self._tensors = {name: (dtype, tuple(shape)) for name, (dtype, shape) in tensors.items()}
        rows = [(name, dtype, list(shape)) for name, (dtype, shape) in self._tensors.items()]
        keys = None if metadata is None else metadata_texts("metadata", metadata, None, removal="leave the key out")
        self._core = _core.CoreWriter(
            fsdecode(out),
            rows,
            container=container,
            metadata=keys,
            shard_size=None if shard_size is None else shard_bytes(shard_size),
            overwrite=overwrite,
            void=void,
        )
        #: Names in the order of their bytes in the files: required to a bucket, and the fastest everywhere.
        self.order: list[str] = self._core.order()
        #: The files, when they are finished.
        self.files: list[str] = []

    def write(self, name: str, data: Any) -> None:
        """Writes a whole tensor of PyTorch or array of numpy, of the dtype and shape that were given; or the next bytes of the
        tensor, little endian and in C order, from any object with a contiguous buffer. Raises ``KeyError`` for another name, and
        ``ValueError`` for more bytes than the tensor has, another dtype or another shape.

            >>> with anamnesis.TensorWriter("w.safetensors", {"w": ("U8", (4,))}) as out:
            ...     out.write("w", b"ab")
            ...     out.write("w", b"cd")
            >>> bytes(anamnesis.open("w.safetensors")["w"].raw())
            b'abcd'
        """
        if name not in self._tensors:
            raise KeyError(name)
        write_pieces(self._core, name, memoryview(_contents(name, data, *self._tensors[name])))

    def finish(self) -> list[str]:
        """Gives the files their names, and returns them. Raises ``ValueError`` for a tensor of which bytes are missing.

            >>> out = anamnesis.TensorWriter("f.safetensors", {"w": ("U8", (1,))})
            >>> out.write("w", b"a")
            >>> out.finish()
            ['f.safetensors']
        """
        self.files = [fsdecode(file) for file in self._core.finish()]
        return self.files

    def close(self) -> None:
        """Leaves nothing, unless the files are finished.

            >>> out = anamnesis.TensorWriter("c.safetensors", {"w": ("U8", (1,))})
            >>> out.close()
            >>> import os.path
            >>> os.path.exists("c.safetensors")
            False
        """
        self._core.close()

    def __enter__(self) -> TensorWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.finish()
        else:
            self.close()


def write_pieces(core: _core.CoreWriter, name: str, contents: memoryview) -> None:
    """Writes bytes of a tensor, a piece at a time."""
    # at least once: the library knows what is missing
    for start in range(0, max(len(contents), 1), _PIECE):
        core.write(name, contents[start : start + _PIECE])


def _contents(name: str, data: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    """An object with a buffer of the bytes of a tensor."""
    from ._frameworks import memory_of

    module = type(data).__module__.partition(".")[0]
    if module not in ("torch", "numpy"):
        return memoryview(data).cast("B")
    if module == "torch":
        # a copy where the memory is elsewhere, strided or lazy
        data = data.detach().cpu().resolve_conj().resolve_neg().contiguous()
    else:
        import numpy as np

        data = np.require(data, requirements=["C", "W"])
    try:
        # the tables of dtypes have no name of a block type, whose tensors are bytes
        return memory_of(module, name, data, dtype, True, shape, data.nbytes)
    except ValueError as e:
        raise ValueError(str(e).removeprefix("out: ")) from None
