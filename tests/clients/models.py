"""Seeded models of two layers with a tokenizer, as transformers saves them."""
import dataclasses
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import typing

import package
import torch
import transformers

# the stubs that replace the CUDA libraries answer this question with an error
torch.cuda.is_current_stream_capturing = lambda *_: False
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

SIZES = dict(vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=32, max_position_embeddings=128)
GPT2 = dict(vocab_size=256, n_embd=128, n_layer=2, n_head=4, n_positions=128)
# differences from SIZES
CONFIGS = {
    "Llama": dict(),
    "Qwen2": dict(),
    "Qwen3": dict(),
    "Qwen3Moe": dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=128),
    "Mixtral": dict(num_local_experts=4, num_experts_per_tok=2),
    "GptOss": dict(num_local_experts=4, num_experts_per_tok=2, intermediate_size=128),
    "DeepseekV3": dict(num_key_value_heads=4, n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1,
                       moe_intermediate_size=128, q_lora_rank=64, kv_lora_rank=64, qk_rope_head_dim=16, head_dim=16,
                       qk_nope_head_dim=32, v_head_dim=32, first_k_dense_replace=1, n_shared_experts=1),
}


@dataclasses.dataclass
class Source:
    """A checkpoint that `remember` reads."""

    path: pathlib.Path
    # the model before it was quantised
    plain: typing.Optional[pathlib.Path] = None
    # the model that was saved, in memory
    model: typing.Any = None


@dataclasses.dataclass
class State:
    """The state of a client after it opened a checkpoint, or the state that it should have."""

    weights: dict
    logits: typing.Optional[torch.Tensor] = None


def model(name, tied=False, dtype=torch.bfloat16):
    if name == "GPT2":
        config = transformers.GPT2Config(**GPT2, tie_word_embeddings=tied)
    else:
        sizes = {**SIZES, **CONFIGS[name], "tie_word_embeddings": tied}
        config = getattr(transformers, name + "Config")(**sizes)
    torch.manual_seed(0)
    made = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    with torch.no_grad():
        for key, parameter in made.named_parameters():
            if "norm" in key or "ln_" in key:
                # all ones otherwise, as if a reader had left them out
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return made


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(256)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", eos_token="w1", pad_token="w2")


def save(made, folder):
    """The folder, with the model and a tokenizer."""
    shutil.rmtree(folder, ignore_errors=True)
    made.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def load(folder, **options):
    """The model; fails where transformers reports that a tensor is missing, unexpected or of another shape, or has another one
    through the Python package."""
    auto = transformers.AutoModelForCausalLM
    made, info = auto.from_pretrained(folder, output_loading_info=True, **options)
    problems = {kind: sorted(map(str, names)) for kind, names in info.items() if names}
    if problems:
        raise AssertionError(f"from_pretrained: {problems}")
    package.check({"": made}, lambda: {"": auto.from_pretrained(folder, **options)})
    return made.eval()


@torch.no_grad()
def logits(made):
    ids = torch.arange(1, 33).reshape(2, 16)
    return made(input_ids=ids).logits.float()


def quantised(name, quantise, tied=False, dtype=torch.bfloat16):
    """A function that makes a source: `quantise(plain, out)` reads the model from one folder, writes it to the other, and
    returns it."""

    def make(work):
        plain = save(model(name, tied, dtype), work / "plain")
        out = work / "quantised"
        made = quantise(plain, out)
        if not (out / "tokenizer.json").exists():
            tokenizer().save_pretrained(out)
        return Source(out, plain, made)

    return make


def from_plain(source, changed, dtype="auto"):
    """Weights of the plain model, some replaced by `changed`, and the logits of a model of them."""
    made = load(source.plain, dtype=dtype)
    weights = made.state_dict()
    for key, value in changed.items():
        weights[key] = value.detach().to(weights[key].dtype).reshape(weights[key].shape)
    made.load_state_dict(weights)
    return State(made.state_dict(), logits(made))


def opened(made):
    return State(made.state_dict(), logits(made))


def opened_folder(folder):
    return opened(load(folder))


ELSEWHERE = """
import pickle, sys
sys.path.insert(0, sys.argv[1])
import models, torch
with open(sys.argv[2], "rb") as file:
    name, args = pickle.load(file)
torch.save(vars(getattr(models, name)(*args)), sys.argv[3])
"""


def elsewhere(function, *args):
    """The state that a function of this module returns, in a process of its own: AutoRound replaces parts of transformers when
    it is imported, so that this process no longer opens what others open."""
    here = pathlib.Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        given, made = f"{folder}/given", f"{folder}/made"
        with open(given, "wb") as file:
            pickle.dump((function.__name__, args), file)
        subprocess.run([sys.executable, "-c", ELSEWHERE, str(here), given, made], check=True)
        return State(**torch.load(made))
