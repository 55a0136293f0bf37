"""GGUF files back to Hugging Face checkpoints, through llama.cpp's own converter and transformers.

usage: LLAMA_CPP=DIR gguf_names.py CONVERTER_BINARY WORK_DIR [CASE ...]

For each case: a seeded model and a trained tokenizer are saved by transformers, converted by llama.cpp's
`convert_hf_to_gguf.py` (from DIR) to F32, F16 and Q8_0, made into a checkpoint again by CONVERTER_BINARY
(`target/debug/examples/gguf_to_hugging_face`), and loaded by `from_pretrained`. Logits of the F32 and F16 files are compared
with the original model's, weights of the Q8_0 file with gguf-py's own dequantisation where the values are not changed by the
converter, and 2000 seeded texts go through both tokenizers.

Needs torch, transformers 5, gguf, tokenizers, sentencepiece, safetensors.
"""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import warnings

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1", TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="")
warnings.filterwarnings("ignore")
import torch
import transformers as tr
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

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
    norm = {} if unigram else dict(normalization_rule_name="identity", remove_extra_whitespaces=False, byte_fallback=True, split_digits=True)
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(pathlib.Path(out) / "spm"), vocab_size=vocabulary, model_type=model_type,
        character_coverage=0.98, hard_vocab_limit=False, minloglevel=2, add_dummy_prefix=prefix, **ids, **norm)
    corpus.unlink()
    (pathlib.Path(out) / "spm.vocab").unlink()
    name = "spiece.model" if unigram else "tokenizer.model"
    os.rename(pathlib.Path(out) / "spm.model", pathlib.Path(out) / name)


# tokens of the trained tokenizers
VOCABULARY = dict(bytes=560, spm=900, unigram=580)
BASE = dict(vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=32, max_position_embeddings=128, bos_token_id=1, eos_token_id=0, pad_token_id=None)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
MOE = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64)


def cases():
    """Name, configuration, tokenizer."""
    def c(cls, **kw):
        return lambda: getattr(tr, cls + "Config")(**{**BASE, **kw})

    yield "llama", c("Llama"), "llama-bpe"
    yield "llama-tied", c("Llama", tie_word_embeddings=True, num_key_value_heads=4), "llama-bpe"
    yield "llama3-rope", c("Llama", hidden_size=256, head_dim=64, rope_parameters=LLAMA3_ROPE), "llama-bpe"
    yield "llama-spm", c("Llama", bos_token_id=1, eos_token_id=2), "spm"
    yield "llama-linear", c("Llama", rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)), "gpt-2"
    yield "mistral", c("Mistral", sliding_window=None), "spm"
    yield "mixtral", c("Mixtral", num_local_experts=4, num_experts_per_tok=2, sliding_window=None), "llama-bpe"
    yield "qwen2", c("Qwen2"), "qwen2"
    yield "qwen2-tied", c("Qwen2", tie_word_embeddings=True), "qwen2"
    yield "qwen2moe", c("Qwen2Moe", shared_expert_intermediate_size=96, **MOE), "qwen2"
    yield "qwen3", c("Qwen3"), "qwen2"
    yield "qwen3-yarn", c("Qwen3", tie_word_embeddings=True, rope_parameters=dict(rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=64)), "qwen2"
    yield "qwen3moe", c("Qwen3Moe", norm_topk_prob=True, **MOE), "qwen2"
    yield "gemma2", c("Gemma2", sliding_window=16, query_pre_attn_scalar=32), "spm-gemma"
    yield "gemma3", c("Gemma3Text", num_hidden_layers=7, sliding_window=16, query_pre_attn_scalar=32), "spm-gemma"
    yield "phi3", c("Phi3", num_key_value_heads=4, pad_token_id=0, sliding_window=None), "spm"
    yield "gpt-oss", c("GptOss", num_local_experts=4, num_experts_per_tok=2, intermediate_size=64, sliding_window=16), "gpt-4o"
    mla = dict(num_key_value_heads=4, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, kv_lora_rank=64,
               qk_rope_head_dim=16, qk_nope_head_dim=32, v_head_dim=32, head_dim=16, first_k_dense_replace=1, n_shared_experts=1)
    yield "deepseek2", c("DeepseekV2", q_lora_rank=None, topk_method="greedy", n_group=1, topk_group=1, **mla), "deepseek-v3"
    yield "deepseek3", c("DeepseekV3", q_lora_rank=64, n_group=2, topk_group=1, **mla), "deepseek-v3"
    yield "glm4", c("Glm4", partial_rotary_factor=0.5, attention_bias=True), "glm4"
    yield "command-r", c("Cohere", logit_scale=0.0625), "command-r"
    yield "granite", c("Granite", embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.22, attention_multiplier=0.0625), "refact"
    yield "starcoder2", c("Starcoder2", sliding_window=None, use_bias=True), "starcoder"
    falcon = dict(vocab_size=1000, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, bos_token_id=1, eos_token_id=0)
    yield "falcon", lambda: tr.FalconConfig(**falcon, multi_query=True, num_kv_heads=1, new_decoder_architecture=False), "falcon"
    yield "falcon-40b", lambda: tr.FalconConfig(**falcon, num_kv_heads=2, new_decoder_architecture=True), "falcon"
    yield "gpt2", lambda: tr.GPT2Config(vocab_size=1000, n_embd=128, n_layer=2, n_head=4, n_positions=128, n_ctx=128, bos_token_id=1, eos_token_id=0), "gpt-2"
    yield "stablelm", c("StableLm", partial_rotary_factor=0.25, use_qkv_bias=True), "olmo"
    yield "bloom", lambda: tr.BloomConfig(vocab_size=1000, hidden_size=128, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=0), "bloom"
    yield "mamba", lambda: tr.MambaConfig(vocab_size=1000, hidden_size=128, num_hidden_layers=2, state_size=16, bos_token_id=1, eos_token_id=0, pad_token_id=0), "olmo"
    yield "t5", lambda: tr.T5Config(vocab_size=1000, d_model=128, d_kv=32, d_ff=256, num_layers=2, num_decoder_layers=2, num_heads=4, feed_forward_proj="gated-gelu", tie_word_embeddings=False, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1), "unigram"


CONVERT = """
import sys; sys.path[:0] = [sys.argv[1], sys.argv[1] + '/gguf-py']; pre = sys.argv[2]; sys.argv = ['convert', *sys.argv[3:]]
import conversion.base as b
b.TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
import runpy; runpy.run_path(sys.path[0] + '/convert_hf_to_gguf.py', run_name='__main__')
"""


def make(config, tokenizer, out):
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    torch.manual_seed(0)
    config = config()
    auto = tr.AutoModelForSeq2SeqLM if config.is_encoder_decoder else tr.AutoModelForCausalLM
    model = auto.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # values that every operation moves, and that F16 holds
            if parameter.ndim == 1 and "A_log" not in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
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
    ids = torch.arange(3, 51).reshape(2, 24)
    extra = {"decoder_input_ids": ids.flip(0)} if model.config.is_encoder_decoder else {}
    return model(input_ids=ids, **extra).logits.float()


def load(out):
    encoder = json.load(open(f"{out}/config.json")).get("is_encoder_decoder")
    auto = tr.AutoModelForSeq2SeqLM if encoder else tr.AutoModelForCausalLM
    model, info = auto.from_pretrained(out, dtype=torch.float32, output_loading_info=True)
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
        samples = [t for t in texts(2600, 11) if not any(m in t for m in ("</s>", "<s>"))][:2000]
    else:
        original = Tokenizer.from_file(f"{source}/tokenizer.json")
        def encode(text):
            return original.encode(text, add_special_tokens=False).ids
        samples = texts(2000, 11)
    wrong = [t for t in samples if ours(t, add_special_tokens=False)["input_ids"] != encode(t)]
    return f"{len(samples) - len(wrong)}/{len(samples)}" + (f" {wrong[0]!r:.60}" if wrong else "")


def convert(source, gguf, kind, tokenizer):
    """Runs llama.cpp's converter; its error, if there is one."""
    pre = tokenizer if tokenizer in STEPS else "default"
    command = [sys.executable, "-c", CONVERT, os.environ["LLAMA_CPP"], pre, source, "--outfile", gguf, "--outtype", kind]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr.strip().splitlines()[-1][:200] if done.returncode else None


def run(name, config, tokenizer, binary, work):
    source = f"{work}/{name}/hf"
    model = make(config, tokenizer, source)
    reference = logits(model)
    row = []
    for kind in os.environ.get("KINDS", "f32,f16,q8_0").split(","):
        gguf, out = f"{work}/{name}/{kind}.gguf", f"{work}/{name}/{kind}"
        shutil.rmtree(out, ignore_errors=True)
        failure = convert(source, gguf, kind, tokenizer)
        if failure:
            return [f"converter failed: {failure}"]
        done = subprocess.run([binary, gguf, out, "f32"], capture_output=True, text=True)
        notes = done.stdout.strip()
        if done.returncode:
            return row + [f"{kind}: {done.stderr.strip()[:200]}"]
        made, bad = load(out)
        ours = logits(made)
        # Gemma's converter drops the rows of the embedding that have no token
        difference = (ours - reference[..., : ours.shape[-1]]).abs().max().item()
        changed = [k for k, v in model.state_dict().items() if k not in made.state_dict() or made.state_dict()[k].shape != v.shape or not torch.equal(made.state_dict()[k], v)]
        row.append(f"{kind}: {len(changed)} of {len(model.state_dict())} weights differ, logits {difference:.2g}" + (f" {changed[:2]}" if kind != "q8_0" and changed else "") + (f" LOADING {bad}" if bad else "") + (f" [{notes}]" if notes else ""))
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
