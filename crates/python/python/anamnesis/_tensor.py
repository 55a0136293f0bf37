"""The description of a stored tensor, which reads bytes on request."""

from __future__ import annotations

from math import prod

from . import _core
from ._frameworks import wrap_for
from ._index import Selection, check_blocks, selection
from ._results import wrapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._index import Box
    from ._checkpoint import Checkpoint
    from ._options import Framework


# formats of the module `struct`, and complex ones of PEP 3118, of the dtypes that have one. Loaded bytes are little endian
_FORMATS = {
    "F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "I16": "h", "I8": "b",
    "U64": "Q", "U32": "I", "U16": "H", "U8": "B", "BOOL": "?", "C64": "Zf", "C128": "Zd",
}  # fmt: skip


# `PyBUF_FORMAT`: the consumer looks at the format
_FORMAT = 4


class Tensor:
    """The description of a stored tensor: nothing of it has been read.

    ``dtype`` has the names of safetensors (``BF16``) and ggml (``Q4_K``), and numpy's of items that only numpy has a type for (``U3``); ``shape`` counts elements, outermost axis first.
    """

    __slots__ = ("_is_dtype", "_loaded_dtype", "_unit", "checkpoint", "dtype", "file", "name", "nbytes", "offset", "shape")

    def __init__(self, checkpoint: Checkpoint, row: _core._Row) -> None:
        self.checkpoint = checkpoint
        self.name, self.dtype, self._is_dtype, self.shape, self.nbytes, file, self.offset, self._unit, self._loaded_dtype = row
        self.file: str | None = checkpoint.files[file][0] if checkpoint.files else None

    @property
    def tied_to(self) -> str | None:
        """The first tensor with the same bytes, dtype and shape, if this is another one: see :attr:`Checkpoint.tied`."""
        return self.checkpoint.tied.get(self.name)

    def __repr__(self) -> str:
        return f"<Tensor {self.name!r}: {self.dtype} {list(self.shape)}>"

    def _repr_html_(self) -> str:
        from html import escape

        place = "" if self.file is None else f"<br>{escape(self.file)}" + ("" if self.offset is None else f", byte {self.offset:,}")
        return f"<b>{escape(self.name)}</b>: {escape(self.dtype)} {list(self.shape)}, {self.nbytes:,} bytes{place}"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without axes has no length")
        return self.shape[0]

    def selection(self, index: Any) -> Selection:
        """The selection of an index. Raises ``IndexError``, and ``ValueError`` for one that cuts blocks."""
        chosen = selection(index, self.shape)
        check_blocks(self.name, self.dtype, self.shape, self._unit, chosen)
        return chosen

    def part(self, chosen: Selection) -> tuple[tuple[int, ...], int]:
        """The shape and the bytes of the box that a selection reads."""
        if chosen.box is None:
            return self.shape, self.nbytes
        shape = tuple(end - start for start, end in chosen.box)
        return shape, self.nbytes * prod(shape) // max(prod(self.shape), 1)

    def to(self, framework: Framework, index: Any = ..., device: Any = None) -> Any:
        """The tensor, or what ``index`` selects of it, as numpy indexes. A basic index (numbers, ranges, an ellipsis,
        ``None``) reads only the box of elements that contains it; masks and arrays select from the whole tensor.

            >>> type(anamnesis.open("fixtures/safetensors/sharded")["lm_head.weight"].to("np")).__name__
            'ndarray'
        """
        chosen = self.selection(index)
        return wrapped(wrap_for(framework, device), {self.name: chosen}, self._load(chosen.box))

    def _load(self, box: Box | None = None) -> _core._Loaded:
        loaded, _, _ = self.checkpoint._core.load(
            {self.name}, borrow=self.checkpoint._borrows, slices=None if box is None else {self.name: box}
        )
        return loaded[0]

    def raw(self) -> memoryview:
        """The stored bytes, whatever they mean.

            >>> tensor = anamnesis.open("fixtures/model/scribe-Q8_0.gguf")["blk.0.attn_q.weight"]
            >>> len(tensor.raw()) == tensor.nbytes
            True
        """
        return memoryview(self._load()[4])

    def torch(self, index: Any = ..., device: Any = None) -> Any:
        """As a tensor of PyTorch.

            >>> anamnesis.open("fixtures/safetensors/sharded")["lm_head.weight"].torch((slice(0, 4), 0)).shape
            torch.Size([4])
        """
        return self.to("torch", index, device)

    def numpy(self, index: Any = ...) -> Any:
        """As an array of numpy.

            >>> anamnesis.open("fixtures/safetensors/sharded")["lm_head.weight"].numpy((slice(0, 4), 0)).shape
            (4,)
        """
        return self.to("numpy", index)

    def __getitem__(self, index: Any) -> Any:
        """The elements that ``index`` selects, as an array of numpy."""
        return self.numpy(index)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """The elements as numpy has them, with the dtypes of ``ml_dtypes``. Raises ``TypeError`` where numpy has no dtype for them: bytes
        in the place of values would be computed with."""
        from ._frameworks.numpy import has_dtype

        if not has_dtype(self._loaded_dtype, self._is_dtype):
            raise TypeError(self._without_dtype("numpy"))
        array = self.numpy()
        if dtype is None or array.dtype == dtype:
            return array
        if copy is False:
            raise ValueError(f"tensor {self.name!r}: {array.dtype} becomes {dtype} by a copy only")
        return array.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        """The tensor for ``from_dlpack`` of any framework. Raises ``BufferError`` where DLPack has no type for its elements:
        ``to("dlpack")`` gives the bytes of these."""
        from ._frameworks.dlpack import DTYPES

        if not (self._is_dtype and self.dtype in DTYPES):
            raise BufferError(self._without_dtype("DLPack"))
        return self.to("dlpack").__dlpack__(**options)

    def _without_dtype(self, what: str) -> str:
        return (
            f"tensor {self.name!r}: {what} has no type for {self.dtype}: .numpy() and .raw() have its bytes, and .remember() "
            "the values of a quantised weight"
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        from ._frameworks.dlpack import CPU

        return CPU

    def __buffer__(self, flags: int, /) -> memoryview:
        """The elements with their format and shape, as ``memoryview(tensor)`` and numpy have them from Python 3.12 on. Raises
        ``BufferError`` where the protocol has no format for them (BF16, blocks): numpy then calls ``__array__``; and for bytes
        without their format, which ``torch.asarray`` takes for numbers of its default dtype."""
        if not flags & _FORMAT:
            raise BufferError(f"tensor {self.name!r}: elements are not passed without their format: .raw() is the bytes")
        element = _FORMATS.get(self.dtype) if self._is_dtype else None
        if element is None:
            if self._has_item_buffer():
                return memoryview(self.numpy())
            raise BufferError(self._without_dtype("the protocol of buffers"))
        return memoryview(_core.elements(self._load()[4], element, self.shape))

    def _has_item_buffer(self) -> bool:
        """Whether numpy makes a buffer of the items, which only numpy has a type for, and the same items of the buffer."""
        if self._is_dtype or self._loaded_dtype == self.dtype:
            return False
        try:
            from ._frameworks.numpy import has_buffer
        except ImportError:
            return False
        return has_buffer(self._loaded_dtype)

    def remember(self, framework: Framework = "torch", dtype: Any = "auto", device: Any = None, index: Any = ...) -> Any:
        """The weight of this name, dequantised, or what ``index`` selects of it: an index may begin inside of a block.

            >>> anamnesis.open("fixtures/model/scribe-Q8_0.gguf")["blk.0.attn_q.weight"].remember("np", dtype="float32").shape
            (64, 64)
        """
        slices = {self.name: index}
        made = self.checkpoint.remember(framework, dtype=dtype, filter=[self.name], device=device, slices=slices)
        return made[self.name]
