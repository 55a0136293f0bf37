"""GGUF files back to Hugging Face checkpoints, through llama.cpp's own converter and transformers.

usage: LLAMA_CPP=DIR [ANAMNESIS=COMMAND] gguf_names.py CONVERTER_BINARY WORK_DIR [CASE ...]

For each case: a seeded model and a trained tokenizer are saved by transformers, converted by llama.cpp's
`convert_hf_to_gguf.py` (from DIR) to F32, F16 and Q8_0, made into a checkpoint again, and loaded by `from_pretrained`. The
checkpoint is made by `COMMAND remember FILE -o DIR/`, or without ANAMNESIS by CONVERTER_BINARY
(`target/debug/examples/gguf_to_hugging_face`).

One line per case, in parts between ` | `:
- for each type: how many weights differ from the original model's, and by how much the logits do;
- the weights of the Q8_0 file against those that transformers loads from it with `gguf_file=`, or why it does not;
- the same against the checkpoint of an F32 file whose values gguf-py has dequantised;
- how many of 2000 seeded texts have the tokens of the original tokenizer.

Needs torch, transformers 5, gguf, tokenizers, sentencepiece, safetensors.
"""
import json
import os
import pathlib
import random
import runpy
import shutil
import subprocess
import sys
import warnings

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1", TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="")
warnings.filterwarnings("ignore")
import gguf
import numpy
import package
import torch
import transformers as tr
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

# one thread, so that a copy of the process can compute too
torch.set_num_threads(1)
torch.cuda.is_current_stream_capturing = lambda *a: False
tr.logging.set_verbosity_error()
tr.utils.logging.disable_progress_bar()

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK3 = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def levels(*steps, gpt2=False):
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=gpt2)])


# the steps of the original tokenizers, by llama.cpp's name
STEPS = {
    "llama-bpe": lambda: (levels(split(LLAMA3)), None),
    "qwen2": lambda: (levels(split(QWEN2)), normalizers.NFC()),
    "gpt-2": lambda: (levels(gpt2=True), None),
    "gpt-4o": lambda: (levels(split(GPT4O)), None),
    "deepseek-v3": lambda: (levels(split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK3)), None),
    "glm4": lambda: (levels(split(LLAMA3)), None),
    "command-r": lambda: (levels(pre_tokenizers.Digits(True), gpt2=True), normalizers.NFC()),
    "starcoder": lambda: (levels(pre_tokenizers.Digits(True), gpt2=True), None),
    "refact": lambda: (levels(pre_tokenizers.Digits(True), gpt2=True), None),
    "falcon": lambda: (
        pre_tokenizers.Sequence([
            pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            pre_tokenizers.Digits(False),
            split("[0-9][0-9][0-9]"),
        ]),
        None,
    ),
    "olmo": lambda: (levels(gpt2=True), normalizers.NFC()),
    "bloom": lambda: (levels(split(" ?[^(\\s|[.,!?…。，、।۔،])]+")), None),
}
IGNORE_MERGES = {"llama-bpe", "glm4", "tekken"}


def texts(count, seed):
    """Texts of all planes, runs of whitespace, numbers, code and special tokens."""
    r = random.Random(seed)
    words = "the of model's WEIGHTS tensor Ünïcode 你好 世界 мир שלום नमस्ते 日本語 don't I'll we've 😀🏳️‍🌈 e\u0301 ① ﬁ café".split()
    code = ["def f(x):\n    return x**2\n", "for (int i = 0; i < 10; ++i) {\n\t}\r\n", "<div class=\"a\">&amp;</div>", "a_b.c-d/e\\f"]
    marks = ["<|a|>", "<|end|>", "</s>", "<s>", "▁", "##"]

    def piece():
        k = r.randrange(9)
        if k == 0:
            return chr(r.choice([r.randrange(32, 0xD800), r.randrange(0xE000, 0x10000), r.randrange(0x10000, 0x110000)]))
        if k == 1:
            return r.choice([" ", "\n", "\t", "\r\n", "\u3000", "\u00a0"]) * r.randrange(1, 9)
        if k == 2:
            return str(r.randrange(10 ** r.randrange(1, 12)))
        if k == 3:
            return r.choice(code)
        if k == 4:
            return r.choice(marks)
        return r.choice(words) + r.choice(["", " ", " ", " ", ",", ". "])

    return ["".join(piece() for _ in range(r.randrange(1, 20))) for _ in range(count)]


def byte_level(out, pre, vocabulary):
    steps, normalizer = STEPS[pre]()
    tokenizer = Tokenizer(models.BPE(ignore_merges=pre in IGNORE_MERGES))
    tokenizer.pre_tokenizer, tokenizer.decoder = steps, decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    special = ["<|end|>", "<|a|>"] + (["<|endoftext|>", "<|user|>"] if pre == "glm4" else [])
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts(400, 7), trainer)
    if pre == "llama-bpe":
        tokenizer.post_processor = processors.TemplateProcessing(single="<|a|> $A", pair="<|a|> $A <|a|>:1 $B:1", special_tokens=[("<|a|>", 1)])
    tr.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|a|>", eos_token="<|end|>", chat_template="{{ messages[0]['content'] }}").save_pretrained(out)


def sentence_piece(out, model_type, vocabulary, prefix=True):
    import sentencepiece

    corpus = pathlib.Path(out) / "corpus.txt"
    corpus.write_text("\n".join(t.replace("\n", " ") for t in texts(600, 7)), encoding="utf-8", errors="replace")
    unigram = model_type == "unigram"
    ids = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1) if unigram else dict(unk_id=0, bos_id=1, eos_id=2)
    norm = UNIGRAM_NORMALIZATION if unigram else dict(normalization_rule_name="identity", remove_extra_whitespaces=False, byte_fallback=True, split_digits=True)
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(pathlib.Path(out) / "spm"), vocab_size=vocabulary, model_type=model_type,
        character_coverage=0.98, hard_vocab_limit=False, minloglevel=2, add_dummy_prefix=prefix, **ids, **norm)
    corpus.unlink()
    (pathlib.Path(out) / "spm.vocab").unlink()
    name = "spiece.model" if unigram else "tokenizer.model"
    os.rename(pathlib.Path(out) / "spm.model", pathlib.Path(out) / name)


# tokens of the trained tokenizers
VOCABULARY = dict(bytes=560, spm=900, unigram=580)
UNIGRAM_NORMALIZATION = dict(normalization_rule_name="nmt_nfkc")
BASE = dict(vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=32, max_position_embeddings=128, bos_token_id=1, eos_token_id=0, pad_token_id=None)
# the sizes of the models, of which most cases take some
MOE = dict(num_experts=4, num_experts_per_tok=2)
MLA = dict(n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, kv_lora_rank=64, qk_rope_head_dim=16,
           qk_nope_head_dim=32, v_head_dim=32, head_dim=16, first_k_dense_replace=1, n_shared_experts=1)
# by case; those that are large are the defaults of their class, which transformers' reader of GGUF does not replace
SIZES = {
    "llama3-rope": dict(hidden_size=256, head_dim=64),
    "qwen2moe": dict(moe_intermediate_size=1408, shared_expert_intermediate_size=5632),
    "qwen3": dict(head_dim=128),
    "qwen3-yarn": dict(head_dim=128),
    "qwen3moe": dict(moe_intermediate_size=768),
    # the first layer with global attention is the sixth
    "gemma3": dict(num_hidden_layers=7),
    "gemma3-linear": dict(num_hidden_layers=7),
    "gpt2": dict(vocab_size=50257, max_position_embeddings=1024),
}


def cases():
    """Name, configuration, tokenizer."""
    llama3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
    # by the type of attention; the global layers are scaled
    gemma3 = dict(full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0), sliding_attention=dict(rope_type="default", rope_theta=10000.0))
    # divisors of the frequencies of short and of long texts
    pairs = range(BASE["head_dim"] // 2)
    longrope = dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1 + i / 64 for i in pairs],
                    long_factor=[1 + i / 2 for i in pairs], original_max_position_embeddings=16)
    heads = BASE["num_attention_heads"]

    def row(name, cls, tokenizer, **more):
        return name, lambda: getattr(tr, cls + "Config")(**{**BASE, **SIZES.get(name, {}), **more}), tokenizer

    def own(name, cls, tokenizer, names, **more):
        """A class whose configuration has names of its own for the sizes."""
        sizes = {**BASE, **SIZES.get(name, {})}
        return name, lambda: getattr(tr, cls + "Config")(**{own: sizes[size] for own, size in names.items()}, **more), tokenizer

    yield row("llama", "Llama", "llama-bpe")
    yield row("llama-tied", "Llama", "llama-bpe", tie_word_embeddings=True, num_key_value_heads=heads)
    yield row("llama3-rope", "Llama", "llama-bpe", rope_parameters=llama3)
    yield row("llama-spm", "Llama", "spm", bos_token_id=1, eos_token_id=2)
    yield row("llama-linear", "Llama", "gpt-2", rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0))
    yield row("mistral", "Mistral", "spm", sliding_window=None)
    experts = dict(num_local_experts=MOE["num_experts"], num_experts_per_tok=MOE["num_experts_per_tok"])
    yield row("mixtral", "Mixtral", "llama-bpe", sliding_window=None, **experts)
    yield row("mixtral-2023", "Mixtral", "spm", sliding_window=None, **experts)
    yield row("qwen2", "Qwen2", "qwen2")
    yield row("qwen2-tied", "Qwen2", "qwen2", tie_word_embeddings=True)
    yield row("qwen2moe", "Qwen2Moe", "qwen2", **MOE)
    yield row("qwen3", "Qwen3", "qwen2")
    yield row("qwen3-yarn", "Qwen3", "qwen2", tie_word_embeddings=True, rope_parameters=dict(rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=64))
    yield row("qwen3moe", "Qwen3Moe", "qwen2", norm_topk_prob=True, **MOE)
    yield row("gemma2", "Gemma2", "spm-gemma", sliding_window=16, query_pre_attn_scalar=BASE["head_dim"])
    yield row("gemma3", "Gemma3Text", "spm-gemma", sliding_window=16, query_pre_attn_scalar=BASE["head_dim"])
    yield row("gemma3-linear", "Gemma3Text", "spm-gemma", sliding_window=16, query_pre_attn_scalar=BASE["head_dim"], rope_parameters=gemma3)
    yield row("phi3", "Phi3", "spm", num_key_value_heads=heads, pad_token_id=0, sliding_window=None)
    yield row("phi3-longrope", "Phi3", "spm", num_key_value_heads=heads, pad_token_id=0, sliding_window=None, rope_parameters=longrope)
    yield row("gpt-oss", "GptOss", "gpt-4o", sliding_window=16, **{**experts, "intermediate_size": BASE["intermediate_size"] // 4})
    mla = dict(num_key_value_heads=heads, **MLA)
    yield row("deepseek2", "DeepseekV2", "deepseek-v3", q_lora_rank=None, topk_method="greedy", n_group=1, topk_group=1, **mla)
    yield row("deepseek3", "DeepseekV3", "deepseek-v3", q_lora_rank=MLA["kv_lora_rank"], n_group=2, topk_group=1, **mla)
    yield row("glm4", "Glm4", "glm4", partial_rotary_factor=0.5, attention_bias=True)
    yield row("command-r", "Cohere", "command-r", logit_scale=0.0625)
    yield row("granite", "Granite", "refact", embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.22, attention_multiplier=0.0625)
    yield row("starcoder2", "Starcoder2", "starcoder", sliding_window=None, use_bias=True)
    tokens = dict(bos_token_id=1, eos_token_id=0)
    names = dict(vocab_size="vocab_size", hidden_size="hidden_size", num_hidden_layers="num_hidden_layers")
    falcon = {**names, "num_attention_heads": "num_attention_heads"}
    yield own("falcon", "Falcon", "falcon", falcon, multi_query=True, num_kv_heads=1, new_decoder_architecture=False, **tokens)
    yield own("falcon-40b", "Falcon", "falcon", {**falcon, "num_kv_heads": "num_key_value_heads"}, new_decoder_architecture=True, **tokens)
    gpt2 = dict(vocab_size="vocab_size", n_embd="hidden_size", n_layer="num_hidden_layers", n_head="num_attention_heads",
                n_positions="max_position_embeddings", n_ctx="max_position_embeddings")
    yield own("gpt2", "GPT2", "gpt-2", gpt2, **tokens)
    yield row("stablelm", "StableLm", "olmo", partial_rotary_factor=0.25, use_qkv_bias=True)
    bloom = dict(vocab_size="vocab_size", hidden_size="hidden_size", n_layer="num_hidden_layers", n_head="num_attention_heads")
    yield own("bloom", "Bloom", "bloom", bloom, **tokens)
    yield own("mamba", "Mamba", "olmo", names, state_size=16, pad_token_id=0, **tokens)
    t5 = dict(vocab_size="vocab_size", d_model="hidden_size", d_kv="head_dim", d_ff="intermediate_size", num_layers="num_hidden_layers",
              num_decoder_layers="num_hidden_layers", num_heads="num_attention_heads")
    ends = dict(decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
    yield own("t5", "T5", "unigram", t5, feed_forward_proj="gated-gelu", tie_word_embeddings=False, **ends)
    yield own("t5-tied", "T5", "unigram", t5, feed_forward_proj="relu", tie_word_embeddings=True, **ends)


def make(config, tokenizer, out):
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    torch.manual_seed(0)
    config = config()
    auto = tr.AutoModelForSeq2SeqLM if config.is_encoder_decoder else tr.AutoModelForCausalLM
    model = auto.from_config(config, dtype=torch.float32).eval()
    if not getattr(config, "scale_decoder_outputs", True):
        # transformers 5 makes every T5 with one matrix for input and output; those that do not scale have two
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.shared.weight))
        model.config.tie_word_embeddings = False
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # values that every operation moves, and that F16 holds
            if parameter.ndim == 1 and "A_log" not in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
                # llama.cpp adds one to the norms of Gemma, which takes the last bits of very small values
                parameter.copy_(torch.round(parameter * 4096) / 4096)
            parameter.copy_(parameter.half().float())
        for name, buffer in model.named_buffers():
            if "e_score_correction_bias" in name:
                buffer.copy_(torch.randn_like(buffer) * 0.1)
    model.save_pretrained(out)
    if tokenizer in ("spm", "spm-gemma"):
        sentence_piece(out, "bpe", VOCABULARY["spm"], tokenizer == "spm")
        (pathlib.Path(out) / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "legacy": True}))
    elif tokenizer == "unigram":
        sentence_piece(out, "unigram", VOCABULARY["unigram"])
        (pathlib.Path(out) / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "T5Tokenizer"}))
    else:
        byte_level(out, tokenizer, VOCABULARY["bytes"])
    return model


@torch.no_grad()
def logits(model):
    # longer than the first context of a model whose frequencies depend on the length
    ids = torch.arange(3, 51).reshape(2, 24)
    extra = {"decoder_input_ids": ids.flip(0)} if model.config.is_encoder_decoder else {}
    return model(input_ids=ids, **extra).logits.float()


def load(out):
    encoder = json.load(open(f"{out}/config.json")).get("is_encoder_decoder")
    auto = tr.AutoModelForSeq2SeqLM if encoder else tr.AutoModelForCausalLM
    model, info = auto.from_pretrained(out, dtype=torch.float32, output_loading_info=True)
    package.check({"": model}, lambda: {"": auto.from_pretrained(out, dtype=torch.float32)})
    bad = {k: sorted(map(str, v))[:4] for k, v in info.items() if v}
    return model.eval(), bad


def compare_tokenizers(kind, source, out):
    if not os.path.exists(f"{out}/tokenizer.json"):
        return "none"
    ours = tr.AutoTokenizer.from_pretrained(out)
    if kind in ("spm", "spm-gemma", "unigram"):
        import sentencepiece

        original = sentencepiece.SentencePieceProcessor(model_file=f"{source}/{'spiece.model' if kind == 'unigram' else 'tokenizer.model'}")
        # special tokens in a text are SentencePiece's plain text
        def encode(text):
            return original.encode(text)
        samples = [t for t in texts(3000, 11) if not any(m in t for m in ("</s>", "<s>"))][:2000]
    else:
        original = Tokenizer.from_file(f"{source}/tokenizer.json")
        def encode(text):
            return original.encode(text, add_special_tokens=False).ids
        samples = texts(2000, 11)
    wrong = [t for t in samples if ours(t, add_special_tokens=False)["input_ids"] != encode(t)]
    return f"{len(samples) - len(wrong)}/{len(samples)}" + (f" {wrong[0]!r:.60}" if wrong else "")


def convert(source, out, kind, tokenizer):
    """Runs llama.cpp's converter; its error, if there is one.

    In a copy of this process: the converter imports torch and transformers, which takes longer than its work.
    """
    pre = tokenizer if tokenizer in STEPS else "default"
    log = out + ".log"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, 1)
            os.dup2(file, 2)
            # the converter's own version of gguf-py
            for module in [name for name in sys.modules if name.split(".")[0] == "gguf"]:
                del sys.modules[module]
            home = os.environ["LLAMA_CPP"]
            sys.path[:0] = [home, f"{home}/gguf-py"]
            import conversion.base

            # a trained tokenizer has a checksum that is not in the converter's list
            conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
            sys.argv = ["convert", source, "--outfile", out, "--outtype", kind]
            runpy.run_path(f"{home}/convert_hf_to_gguf.py", run_name="__main__")
            status = 0
        except SystemExit as error:
            status = int(bool(error.code))
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    _, status = os.waitpid(child, 0)
    lines = pathlib.Path(log).read_text(errors="replace").strip().splitlines() or [f"status {status}"]
    return lines[-1][:200] if status else None


def rewritten(source, out, tensors):
    """The same file with the tensors (name, array, type) that a function of its reader makes."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, reader.get_field("general.architecture").contents())
    for field in reader.fields.values():
        if field.name == "general.architecture" or field.name.startswith("GGUF."):
            continue
        kind, sub = field.types[0], field.types[-1]
        writer.add_key_value(field.name, field.contents(), kind, sub_type=sub if kind == gguf.GGUFValueType.ARRAY else None)
    for name, values, kind in tensors(reader):
        writer.add_tensor(name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def one_by_one(reader):
    """One tensor per expert, as llama.cpp's converters of 2023 wrote them."""
    for tensor in reader.tensors:
        if "_exps." in tensor.name:
            for expert, values in enumerate(tensor.data):
                yield tensor.name.replace("_exps.", f".{expert}."), numpy.array(values), tensor.tensor_type
        else:
            yield tensor.name, numpy.array(tensor.data), tensor.tensor_type


def dequantised(reader):
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(tensor.shape[::-1])
        yield tensor.name, numpy.ascontiguousarray(values, dtype=numpy.float32), gguf.GGMLQuantizationType.F32


# changes of what llama.cpp's converter writes
REWRITES = {"mixtral-2023": one_by_one}


def remembered(binary, source, out):
    """Makes a checkpoint of F32; what was printed, and the error, if there is one."""
    shutil.rmtree(out, ignore_errors=True)
    command = [binary, source, out, "f32"]
    if "ANAMNESIS" in os.environ:
        command = [os.environ["ANAMNESIS"], "remember", source, "-o", f"{out}/", "--dtype", "f32", "--cast"]
    done = subprocess.run(command, capture_output=True, text=True)
    notes = " ".join(line for line in (done.stdout + done.stderr).splitlines() if line.startswith("note: "))
    return notes, done.stderr.strip()[:300] if done.returncode else None


def unequal(found, expected):
    """Names of the weights that differ in shape or in a bit."""
    same = lambda a, b: a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
    names = found.keys() | expected.keys()
    return sorted(name for name in names if name not in found or name not in expected or not same(found[name], expected[name]))


def counted(found, expected):
    wrong = unequal(found, expected)
    return f"{len(expected) - len(wrong)} of {len(expected)} equal" + (f" {wrong[:3]}" if wrong else "")


def by_transformers(made, path):
    """The weights that transformers loads from the file itself, against those that it loads from the checkpoint."""
    auto = tr.AutoModelForSeq2SeqLM if made.config.is_encoder_decoder else tr.AutoModelForCausalLM
    folder, file = os.path.split(path)
    try:
        direct, info = auto.from_pretrained(folder, gguf_file=file, dtype=torch.float32, output_loading_info=True)
    except Exception as error:
        return f"fails: {type(error).__name__}: {' '.join(str(error).split())[:120]}"
    missing = sorted(map(str, info["missing_keys"])) + sorted(map(str, info["mismatched_keys"]))
    if missing:
        return f"does not load {len(missing)} weights ({missing[0]})"
    found = counted(made.state_dict(), direct.state_dict())
    difference = (logits(made) - logits(direct.eval())).abs().max().item()
    return f"{found}, logits {difference:.2g}"


def run(name, config, tokenizer, binary, work):
    source = f"{work}/{name}/hf"
    model = make(config, tokenizer, source)
    reference, original = logits(model), model.state_dict()
    row = []
    for kind in os.environ.get("KINDS", "f32,f16,q8_0").split(","):
        path, out = f"{work}/{name}/{kind}.gguf", f"{work}/{name}/{kind}"
        failure = convert(source, path, kind, tokenizer)
        if failure:
            return row + [f"converter failed: {failure}"]
        if name in REWRITES:
            rewritten(path, path + ".new", REWRITES[name])
            os.replace(path + ".new", path)
        notes, failure = remembered(binary, path, out)
        if failure:
            return row + [f"{kind}: {failure}"]
        made, bad = load(out)
        ours = logits(made)
        # Gemma's converter drops the rows of the embedding that have no token
        difference = (ours - reference[..., : ours.shape[-1]]).abs().max().item()
        changed = unequal(made.state_dict(), original)
        row.append(f"{kind}: {len(changed)} of {len(original)} weights differ, logits {difference:.2g}" + (f" {changed[:2]}" if kind != "q8_0" and changed else "") + (f" LOADING {bad}" if bad else "") + (f" [{notes}]" if notes else ""))
        if kind == "q8_0":
            row.append(f"gguf_file {by_transformers(made, path)}")
            plain = f"{work}/{name}/dequantised"
            rewritten(path, plain + ".gguf", dequantised)
            _, failure = remembered(binary, plain + ".gguf", plain)
            row.append("gguf-py " + (failure or counted(made.state_dict(), load(plain)[0].state_dict())))
    row.append("tokenizer " + compare_tokenizers(tokenizer, source, out))
    return row


def main():
    binary, work, *chosen = sys.argv[1:]
    for name, config, tokenizer in cases():
        if chosen and name not in chosen:
            continue
        try:
            row = run(name, config, tokenizer, os.path.abspath(binary), os.path.abspath(work))
        except Exception as error:  # one case must not end the table
            row = [f"{type(error).__name__}: {str(error)[:300]}"]
        print(f"{name:14} " + " | ".join(row), flush=True)


if __name__ == "__main__":
    main()
