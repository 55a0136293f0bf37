"""Tokenizers from GGUF vocabularies against independent references.

usage: LLAMA_CPP=DIR ANAMNESIS=COMMAND vocabularies.py WORK_DIR [NAME ...]

Three tables, one line each per vocabulary or name:
- `file`: the vocabularies in DIR/models, whose `ggml-vocab-*.gguf.inp` and `.out` hold texts and llama.cpp's tokens;
- `wordpiece`: trained WordPiece vocabularies, stored as llama.cpp's converter stores BERT's, against transformers' BertTokenizer;
- `pre`: every pre-tokenizer of `src/models/tokenizer/pre_tokenizers.rs`, on 2000 seeded texts, against the expressions in llama.cpp's
  `src/llama-vocab.cpp` (the original ones in its comments where it has rewritten them), matched by Python's `regex`.

Needs gguf, numpy, regex, tokenizers, transformers.
"""
import json
import os
import pathlib
import re
import sys
import unicodedata

import gguf
import gguf_names as names
import numpy
import regex
import transformers
from tokenizers import BertWordPieceTokenizer, Tokenizer, decoders, normalizers

TABLE = pathlib.Path(__file__).parents[2] / "src/models/tokenizer/pre_tokenizers.rs"
# pre-tokenizers whose steps differ from llama.cpp's for a reason
DIFFERENT = {"deepseek-llm": "llama.cpp keeps runs of digits together; the tokens are the same, as no merge joins digits"}


def model(path, tokenizer):
    """A GGUF of a Llama with one tensor, and the tokenizer that a function writes."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(8)
    writer.add_block_count(1)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    tokenizer(writer)
    writer.add_tensor("token_embd.weight", numpy.zeros((4, 8), numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def converted(work, label, tokenizer):
    """The tokenizer that the command makes, or what it printed instead."""
    path, out = f"{work}/{label}.gguf", f"{work}/{label}"
    model(path, tokenizer)
    notes, failure = names.remembered("", path, out)
    os.remove(path)
    if failure or not os.path.exists(f"{out}/tokenizer.json"):
        return None, failure or notes
    return Tokenizer.from_file(f"{out}/tokenizer.json"), None


def copied(source):
    """Writes the tokenizer of another file."""
    def into(writer):
        for field in gguf.GGUFReader(source).fields.values():
            if field.name.startswith("tokenizer."):
                kind, sub = field.types[0], field.types[-1]
                writer.add_key_value(field.name, field.contents(), kind, sub_type=sub if kind == gguf.GGUFValueType.ARRAY else None)

    return into


def files(work, chosen):
    for path in sorted(pathlib.Path(os.environ["LLAMA_CPP"], "models").glob("ggml-vocab-*.gguf")):
        label = path.stem.removeprefix("ggml-vocab-")
        texts = path.with_name(path.name + ".inp")
        if chosen and label not in chosen or not texts.exists():
            continue
        tokenizer, failure = converted(work, label, copied(path))
        if failure:
            yield "file", label, failure
            continue
        inputs = texts.read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
        results = path.with_name(path.name + ".out").read_text(encoding="utf-8").splitlines()
        wrong = []
        # the separator ends the file too
        for text, result in zip(inputs[:len(results)], results, strict=True):
            if tokenizer.encode(text, add_special_tokens=False).ids != [int(n) for n in result.split()]:
                wrong.append(text)
        yield "file", label, shown(len(results), wrong)


def shown(count, wrong):
    return f"{count - len(wrong)} of {count} equal" + (f" {wrong[0]!r:.70}" if wrong else "")


def wordpiece(work, chosen):
    texts = [t for t in names.texts(2600, 11) if "[" not in t][:2000]
    for label, cased in [("uncased", False), ("cased", True)]:
        if chosen and label not in chosen:
            continue
        trained = BertWordPieceTokenizer(lowercase=not cased)
        trained.train_from_iterator(names.texts(600, 7), vocab_size=900, show_progress=False)
        tokens = sorted(trained.get_vocab(), key=trained.get_vocab().get)
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

        def tokenizer(writer):
            # `phantom` of llama.cpp's conversion/bert.py
            plain = lambda t: t if t in special else t[2:] if t.startswith("##") else "\u2581" + t
            writer.add_tokenizer_model("bert")
            writer.add_tokenizer_pre("jina-v2-de")
            writer.add_token_list([plain(t) for t in tokens])
            writer.add_token_types([gguf.TokenType.CONTROL if t in special else gguf.TokenType.NORMAL for t in tokens])
            for add, token in [(writer.add_unk_token_id, "[UNK]"), (writer.add_bos_token_id, "[CLS]"), (writer.add_sep_token_id, "[SEP]"),
                               (writer.add_pad_token_id, "[PAD]"), (writer.add_mask_token_id, "[MASK]")]:
                add(tokens.index(token))

        made, failure = converted(work, label, tokenizer)
        if failure:
            yield "wordpiece", label, failure
            continue
        vocabulary = pathlib.Path(work, "vocab.txt")
        vocabulary.write_text("\n".join(tokens) + "\n")
        original = transformers.BertTokenizer(str(vocabulary), do_lower_case=not cased)
        wrong = [t for t in texts if made.encode(t).ids != original(t)["input_ids"]]
        yield "wordpiece", label, shown(len(texts), wrong)


def expressions():
    """By name: llama.cpp's expressions, and whether a word that is a token is not divided."""
    source = pathlib.Path(os.environ["LLAMA_CPP"], "src/llama-vocab.cpp").read_text(encoding="utf-8")
    by_type, types, pending = {}, [], None
    literal = re.compile(r'^(//\s*)?"((?:[^"\\]|\\.)*)",?\s*(//.*)?$')
    begin = source.index("case LLAMA_VOCAB_PRE_TYPE_LLAMA3:")
    for line in map(str.strip, source[begin:source.index("default regex for BPE", begin)].splitlines()):
        if label := re.match(r"case (LLAMA_VOCAB_PRE_TYPE_\w+):", line):
            types.append(label[1])
        elif line.startswith("break"):
            types = []
        elif inline := re.match(r'// original regex from tokenizer.json: ("(?:[^"\\]|\\.)*")', line):
            pending = json.loads(inline[1])
        elif found := literal.match(line):
            text = json.loads(f'"{found[2]}"')
            if found[1]:
                pending = text
            else:
                for each in types:
                    by_type.setdefault(each, []).append(pending or text)
                pending = None
    named = {}
    for group in re.finditer(r'((?:tokenizer_pre == "[^"]+"[\s|)]*)+)\{([^}]*)\}', source):
        kind = re.search(r"pre_type = (LLAMA_VOCAB_PRE_TYPE_\w+)", group[2])
        for name in re.findall(r'"([^"]+)"', group[1]):
            if kind and kind[1] in by_type:
                named[name] = by_type[kind[1]], "ignore_merges = true" in group[2]
    return named


def divided(text, patterns):
    """Words: the matches of each expression, and what is between them, in the words of the one before."""
    words = [text]
    for pattern in patterns:
        found = []
        for word in words:
            at = 0
            for match in pattern.finditer(word):
                found += [word[at:match.start()], match.group()]
                at = match.end()
            found.append(word[at:])
        words = [word for word in found if word]
    return words


def pre_tokenizers(work, chosen):
    known = expressions()
    rows = re.findall(r"names: &\[([^\]]*)\]", TABLE.read_text(encoding="utf-8"))
    alphabet = sorted(names.pre_tokenizers.ByteLevel.alphabet())
    # without characters that this Python's Unicode does not assign: the two engines have tables of different versions
    texts = ["".join(c for c in t if unicodedata.category(c) != "Cn") for t in names.texts(2000, 13)]
    bytes_of = decoders.ByteLevel()
    for name in re.findall(r'"([^"]+)"', " ".join(rows)):
        if chosen and name not in chosen:
            continue

        def tokenizer(writer):
            writer.add_tokenizer_model("gpt2")
            writer.add_tokenizer_pre(name)
            writer.add_token_list([*alphabet, alphabet[70] + alphabet[71]])
            writer.add_token_types([gguf.TokenType.NORMAL] * (len(alphabet) + 1))
            writer.add_token_merges([f"{alphabet[70]} {alphabet[71]}"])

        made, failure = converted(work, name, tokenizer)
        if failure or name not in known:
            yield "pre", name, failure or "llama.cpp has no such name"
            continue
        patterns, whole = known[name]
        patterns = [regex.compile(pattern) for pattern in patterns]
        wrong = []
        for text in texts:
            # llama.cpp normalises no text
            text = made.normalizer.normalize_str(text) if made.normalizer else text
            words = [bytes_of.decode([word]) for word, _ in made.pre_tokenizer.pre_tokenize_str(text)]
            if words != divided(text, patterns):
                wrong.append(text)
        document = json.loads(made.to_str())
        other = " DIFFERENT ignore_merges" if document["model"]["ignore_merges"] != whole else ""
        yield "pre", name, shown(len(texts), wrong) + other + (f" ({DIFFERENT[name]})" if name in DIFFERENT else "")


def main():
    work, *chosen = sys.argv[1:]
    os.makedirs(work, exist_ok=True)
    for part in (files, wordpiece, pre_tokenizers):
        for table, name, result in part(work, chosen):
            print(f"{table:10} {name:20} {result}", flush=True)


if __name__ == "__main__":
    main()
