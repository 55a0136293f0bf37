"""GGUF files of each block type against transformers' own reader of GGUF."""
import os
import pathlib

import gguf
import gguf_names
import models
import numpy
import transformers
from case import Case

MADE = ("llama.cpp's `convert_hf_to_gguf.py`, quantised by gguf-py; random blocks for the types that gguf-py does not "
        "write")
REFERENCE = "transformers' `from_pretrained(…, gguf_file=…)`, F32"
CLIENT = "transformers"

Type = gguf.GGMLQuantizationType
# halves of a block that are scales, where a random one would be infinite: offset and number
SCALES = {Type.Q2_K: (80, 2), Type.Q3_K: (108, 1), Type.Q4_K: (0, 2), Type.Q5_K: (0, 2), Type.Q6_K: (208, 1), Type.IQ4_XS: (0, 1)}


def random_blocks(shape, kind, seed):
    block, size = gguf.GGML_QUANT_SIZES[kind]
    generator = numpy.random.default_rng(seed)
    raw = generator.integers(0, 256, (*shape[:-1], shape[-1] // block, size), dtype=numpy.uint8)
    at, count = SCALES[kind]
    halves = generator.uniform(1e-4, 4e-4, (*raw.shape[:-1], count)).astype(numpy.float16)
    raw[..., at:at + 2 * count] = halves.view(numpy.uint8)
    return raw.reshape(*shape[:-1], -1)


def requantised(source, out, kind):
    """The same file with matrices of this type."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, reader.get_field("general.architecture").contents())
    for field in reader.fields.values():
        if field.name == "general.architecture" or field.name.startswith("GGUF."):
            continue
        value, types = field.contents(), field.types
        element = types[-1] if types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, types[0], sub_type=element)
    for number, tensor in enumerate(reader.tensors):
        values = numpy.array(tensor.data).reshape(tensor.shape[::-1])
        if values.ndim < 2:
            writer.add_tensor(tensor.name, values)
        elif kind in SCALES:
            writer.add_tensor(tensor.name, random_blocks(values.shape, kind, number), raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(kind, label, config, tokenizer):
    def into(work):
        plain, folder = work / "plain", work / "gguf"
        folder.mkdir()
        # the file of F32, the same for all types: kept beside the folders of the cases
        converted = work.parent / f"{label}.gguf"
        if not converted.exists():
            gguf_names.make(config, tokenizer, str(plain))
            failure = gguf_names.convert(str(plain), str(converted), "f32", tokenizer)
            if failure:
                raise AssertionError(failure)
        requantised(converted, folder / "model.gguf", kind)
        return models.Source(folder / "model.gguf", plain)

    def checked(work):
        if not pathlib.Path(os.environ.get("LLAMA_CPP", ""), "convert_hf_to_gguf.py").is_file():
            raise FileNotFoundError("LLAMA_CPP names no folder with convert_hf_to_gguf.py")
        return into(work)

    return checked


def by_transformers(source):
    made = transformers.AutoModelForCausalLM.from_pretrained(source.path.parent, gguf_file=source.path.name, dtype="float32")
    return models.opened(made.eval())


def config(name, **more):
    # rows of 256, the largest block
    sizes = {**gguf_names.BASE, "hidden_size": 256, "head_dim": 64, **more}
    return lambda: getattr(transformers, name + "Config")(**sizes)


def case(kind, name="Llama", tied=False):
    label = f"{name}{', tied' if tied else ''}"
    tokenizer = "llama-bpe" if name == "Llama" else "qwen2"
    source = make(kind, label, config(name, tie_word_embeddings=tied), tokenizer)
    return Case(f"{kind.name}, {label}", source, by_transformers, options=("--dtype", "f32", "--cast"),
                unavailable="needs llama.cpp")


TYPES = [Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, *SCALES]

CASES = [*map(case, TYPES), case(Type.Q8_0, tied=True), case(Type.Q4_0, "Qwen2")]
