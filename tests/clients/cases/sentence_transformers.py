"""sentence-transformers: models with their pooling, which files beside the weights describe."""
import json
import shutil

import bitsandbytes
import models
import torch
import transformers
from case import Case
from cases.bitsandbytes import nf4
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

MADE = "sentence-transformers' `save_pretrained`, the quantised ones with `BitsAndBytesConfig`, nf4"
REFERENCE = "the model in memory, with bitsandbytes' `dequantize_4bit` of each module; logits are the embeddings of three sentences"
CLIENT = ("sentence-transformers' `SentenceTransformer`, after the folders of modules.json were copied, which the notes of `remember` name "
          "as not copied")

SENTENCES = ["w3 w4 w5", "w6", "w7 w8 w9 w10 w11"]
BERT = dict(vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=128)


def encoder(name):
    """A model without a head: a decoder whose last token has the embedding, or BERT with the mean of all tokens."""
    if name == "Bert":
        torch.manual_seed(0)
        return transformers.BertModel(transformers.BertConfig(**BERT)).eval(), "mean"
    return models.model(name).model, "lasttoken"


def saved(name, quantised=False):
    def make(work):
        made, mode = encoder(name)
        base, plain = models.save(made, work / "base"), work / "plain"
        SentenceTransformer(modules=[Transformer(str(base)), Pooling(128, mode), Normalize()], device="cpu").save_pretrained(str(plain))
        if not quantised:
            return models.Source(plain, plain)
        model = SentenceTransformer(str(plain), device="cpu", model_kwargs={"quantization_config": nf4()})
        model.save_pretrained(str(work / "quantised"))
        return models.Source(work / "quantised", plain, model)

    return make


def state(model):
    return models.State(dict(model.state_dict()), model.encode(SENTENCES, convert_to_tensor=True).float())


def opened(out, source):
    for module in json.loads((out / "modules.json").read_text()):
        if module["path"] and (source.path / module["path"]).exists():
            shutil.copytree(source.path / module["path"], out / module["path"])
    model = SentenceTransformer(str(out), device="cpu")
    kinds = [type(module).__name__ for module in model]
    if kinds != ["Transformer", "Pooling", "Normalize"]:
        raise AssertionError(f"the modules are {kinds}: modules.json was not copied")
    return state(model)


def reference(source):
    made = SentenceTransformer(str(source.plain), device="cpu")
    weights = made.state_dict()
    changed = 0
    for name, module in source.model.named_modules() if source.model else ():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            value = bitsandbytes.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
            weights[name + ".weight"] = value.to(weights[name + ".weight"].dtype)
            changed += 1
    if bool(source.model) != bool(changed):
        raise AssertionError("nothing was quantised")
    made.load_state_dict(weights)
    return state(made)


CASES = [
    Case("BERT, mean of the tokens", saved("Bert"), reference, opened),
    Case("Qwen3, last token, in shards", saved("Qwen3"), reference, opened, ("--shard-size", "200KB")),
    Case("nf4, Qwen3, last token", saved("Qwen3", quantised=True), reference, opened),
    Case("nf4, BERT, mean of the tokens", saved("Bert", quantised=True), reference, opened, ("--dtype", "float32")),
]
