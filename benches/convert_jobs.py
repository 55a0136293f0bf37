#!/usr/bin/env python3
"""Copies of tensor files, alternating with `cp` and with the tools that people use: time, time ÷ `cp`, processor time, peak memory.

    python3 benches/convert_jobs.py target/release/anamnesis [--mib 512] [--rounds 7] [--work DIR] [--python PYTHON] [--publish]

PYTHON has numpy, safetensors and gguf (`pip install numpy safetensors gguf`), and, to be measured, mergekit and mlx_lm
(`pip install mergekit mlx-lm mlx[cpu]`); `llama-gguf-split` is found in the path. A tool that is missing is listed. `hf` has no command
that writes tensors. One process per variant; each round runs every variant of a job once, and the first one rotates. Outputs are compared before
anything is timed: the digests of all tensors, by the readers of safetensors and gguf. Ours waits until its output is on the device, and the peers
do not: `cp, then sync` waits as well. The file systems are synced before each run. Peak memory is the resident set, which counts mapped pages of
files too, and beside it the anonymous part, read every 2 ms. --publish writes benches/results/convert_jobs.json, from which `UPDATE=1 cargo test
--test results` makes the table of docs/convert.md.
"""
import argparse, datetime, hashlib, json, math, mmap, os, platform, shlex, shutil, statistics, struct, subprocess, sys, tempfile, time

RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'results', 'convert_jobs.json')

# Each variant of a peer, as a program for PYTHON: its arguments are the source, the target and, of some, a number.
RENAME = """
import sys
from safetensors import safe_open
from safetensors.numpy import save_file
with safe_open(sys.argv[1], 'np') as f:
    save_file({k.replace('model.', 'net.', 1): f.get_tensor(k) for k in f.keys()}, sys.argv[2])
"""
EXTRACT = """
import sys
from safetensors import safe_open
from safetensors.numpy import save_file
with safe_open(sys.argv[1], 'np') as f:
    save_file({k: f.get_tensor(k) for k in f.keys() if k.startswith('model.layers.1.')}, sys.argv[2])
"""
MERGE = """
import glob, sys
from safetensors.numpy import load_file, save_file
tensors = {}
for path in sorted(glob.glob(sys.argv[1] + '/*.safetensors')): tensors.update(load_file(path))
save_file(tensors, sys.argv[2])
"""
# the whole of the command, for a directory that must not exist
MLX = """
import shutil, sys
from mlx_lm import convert
shutil.rmtree(sys.argv[2], ignore_errors=True)
convert(sys.argv[1], mlx_path=sys.argv[2], dtype='float16')
"""
# names and digests, as each reader finds them
DIGESTS = """
import glob, hashlib, json, os, sys
found = {}
path = sys.argv[1]
files = sorted(p for p in glob.glob(path + '/*') if p.endswith(('.safetensors', '.gguf'))) if os.path.isdir(path) else [path]
for file in files:
    if file.endswith('.gguf'):
        from gguf import GGUFReader
        for t in GGUFReader(file).tensors: found[t.name] = hashlib.sha256(t.data.tobytes()).hexdigest()
    else:
        from safetensors import safe_open
        with safe_open(file, 'np') as f:
            for k in f.keys(): found[k] = hashlib.sha256(f.get_tensor(k).tobytes()).hexdigest()
print(json.dumps(found, sort_keys=True))
"""


def names(mib):
    return [f'model.layers.{i // 4}.part{i % 4}.weight' for i in range(mib // 8)]


def safetensors_file(path, mine, block):
    """F16 tensors, which numpy has: of 8 MiB, or of the shapes that `mine` gives the names."""
    header, at = {'__metadata__': {'format': 'pt'}}, 0
    for n in mine:
        shape = mine[n] if isinstance(mine, dict) else [2048, 2048]
        size = 2 * math.prod(shape)
        header[n] = {'dtype': 'F16', 'shape': shape, 'data_offsets': [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text)
        for number in range(at >> 20):
            f.write(struct.pack('<Q', number) + block[8:])
        f.write(block[:at % (1 << 20)])


def llama_directory(path, mib, block):
    """A model of Llama's names and shapes, as Hugging Face lays it out: 92 MiB for each layer, 24 MiB for the rest."""
    os.makedirs(path)
    d, inner, vocabulary, layers = 2048, 6144, 6144, max(1, mib // 92)
    shapes = {'model.embed_tokens.weight': [vocabulary, d], 'model.norm.weight': [d]}
    for layer in range(layers):
        for n, shape in (('self_attn.q_proj', [d, d]), ('self_attn.k_proj', [512, d]), ('self_attn.v_proj', [512, d]), ('self_attn.o_proj', [d, d]),
                         ('mlp.gate_proj', [inner, d]), ('mlp.up_proj', [inner, d]), ('mlp.down_proj', [d, inner]),
                         ('input_layernorm', [d]), ('post_attention_layernorm', [d])):
            shapes[f'model.layers.{layer}.{n}.weight'] = shape
    safetensors_file(os.path.join(path, 'model.safetensors'), shapes, block)
    write = lambda name, value: json.dump(value, open(os.path.join(path, name), 'w'))
    write('config.json', {
        'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_size': d, 'intermediate_size': inner, 'num_hidden_layers': layers,
        'num_attention_heads': 16, 'num_key_value_heads': 4, 'head_dim': 128, 'vocab_size': vocabulary, 'max_position_embeddings': 4096,
        'rms_norm_eps': 1e-5, 'rope_theta': 10000.0, 'tie_word_embeddings': True, 'hidden_act': 'silu', 'torch_dtype': 'float16'})
    words = {f'w{number}': number for number in range(vocabulary)}
    write('tokenizer.json', {'version': '1.0', 'added_tokens': [], 'normalizer': None, 'pre_tokenizer': {'type': 'Whitespace'}, 'post_processor': None,
                             'decoder': None, 'truncation': None, 'padding': None, 'model': {'type': 'WordLevel', 'vocab': words, 'unk_token': 'w0'}})
    write('tokenizer_config.json', {'tokenizer_class': 'PreTrainedTokenizerFast', 'unk_token': 'w0', 'eos_token': 'w1', 'bos_token': 'w2'})


def gguf_file(path, mine, block):
    """The same as a GGUF of architecture llama."""
    def text(s): return struct.pack('<Q', len(s)) + s.encode()
    head = struct.pack('<4sIQQ', b'GGUF', 3, len(mine), 2)
    for key, value in (('general.architecture', 'llama'), ('general.name', 'bench')):
        head += text(key) + struct.pack('<I', 8) + text(value)
    for number, n in enumerate(mine):
        head += text(n) + struct.pack('<IQQIQ', 2, 2048, 2048, 1, number * (8 << 20))
    head += b'\0' * (-len(head) % 32)
    with open(path, 'wb') as f:
        f.write(head)
        for number in range(len(mine) * 8):
            f.write(struct.pack('<Q', number) + block[8:])


def memory(pid):
    """KiB of the resident set at its peak, and of its anonymous part now."""
    try:
        lines = dict(l.split(':', 1) for l in open(f'/proc/{pid}/status'))
        return tuple(int(lines[key].split()[0]) for key in ('VmHWM', 'RssAnon'))
    except (OSError, KeyError, ValueError):
        return 0, 0


def own_memory():
    """Takes the machine's free memory once, and gives it back; warns if it does not stay the machine's own.

    A virtual machine that reports free pages (CONFIG_PAGE_REPORTING) hands memory that was free for two seconds to its host, and a run that gets
    such pages waits for them: the same copy took up to 8 times as long, of whichever program, and more often of one than of another.
    """
    order = '/sys/module/page_reporting/parameters/page_reporting_order'
    if os.path.exists(order) and int(open(order).read()) < 11:
        print(f'warning: free pages are reported to the host of this machine, and times vary by it: as root, `echo 11 > {order}` until the end', file=sys.stderr)
    free = next(int(line.split()[1]) << 10 for line in open('/proc/meminfo') if line.startswith('MemFree'))
    pages = mmap.mmap(-1, free // 8 * 7)
    pages.madvise(23)  # MADV_POPULATE_WRITE, Linux 5.14
    pages.close()


def timed(line):
    """Seconds, processor seconds, KiB resident, KiB anonymous, minor and major faults; or the end of the error."""
    began = time.perf_counter()
    child = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    resident = anonymous = 0
    while True:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            break
        # not of `wait4`, which has what was resident before `exec`
        now = memory(child.pid)
        resident, anonymous = max(resident, now[0]), max(anonymous, now[1])
        time.sleep(0.002)
    seconds = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f'{line[:4]}… failed: {child.stderr.read()[-500:]}')
    return seconds, usage.ru_utime + usage.ru_stime, resident, anonymous, usage.ru_minflt, usage.ru_majflt


def row(job, variant, samples, limit):
    """A row of the results, in the form of benches/peers/src/results/rows.rs: times in nanoseconds."""
    columns = list(zip(*samples))
    middle = [statistics.median(column) for column in columns]
    times = [seconds * 1e9 for seconds in columns[0]]
    return {
        'case': job, 'variant': variant, 'median': middle[0] * 1e9, 'minimum': min(times), 'maximum': max(times), 'n': len(times), 'samples': times,
        'peak_kib': int(middle[2]), 'minor_faults': int(middle[4]), 'major_faults': int(middle[5]), 'limit': {'what': '`cp`', 'median': limit * 1e9},
        'more': {'CPU time ns': middle[1] * 1e9, 'anonymous KiB': float(middle[3])}}


def provenance(python, rounds):
    """When, of which commit and on which machine this is measured."""
    root = os.path.dirname(os.path.dirname(RESULTS))
    output = lambda *line: subprocess.run(line, capture_output=True, text=True, cwd=root).stdout.strip()
    field = lambda path, name: next(line.split(':', 1)[1].strip() for line in open(path) if line.startswith(name))
    packages = "import importlib.metadata as m, json\nprint(json.dumps({d.metadata['Name'].lower(): d.version for d in m.distributions()}))"
    found = json.loads(output(python, '-c', packages))
    versions = {name: found[name] for name in ('gguf', 'mergekit', 'mlx-lm', 'numpy', 'safetensors') if name in found}
    return {
        'date': datetime.datetime.now(datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ'), 'commit': output('git', 'rev-parse', 'HEAD'),
        'dirty': bool(output('git', 'status', '--porcelain', '--', '.', ':!results')), 'rustc': output('rustc', '--version'),
        'kernel': output('uname', '-s', '-r', '-m'), 'cpu': field('/proc/cpuinfo', 'model name'), 'cores': os.cpu_count(),
        'memory_gib': round(int(field('/proc/meminfo', 'MemTotal').split()[0]) / 1048576, 1),
        'python': {'python': platform.python_version(), **versions}, 'rounds': rounds}


def publish(rows, missing, seconds, run):
    """The file of results: a line for each row."""
    lines = lambda values: '[' + ','.join('\n' + json.dumps(value) for value in values) + ('\n]' if values else ']')
    absent = [{'case': 'all jobs of it', 'variant': name, 'reason': 'not installed'} for name in missing]
    fields = {'section': json.dumps('convert_jobs'), 'run': json.dumps(run), 'rows': lines(rows), 'missing': lines(absent), 'notes': '[]', 'seconds': json.dumps(seconds)}
    with open(RESULTS, 'w') as out:
        out.write('{\n' + ',\n'.join(f'"{name}": {text}' for name, text in fields.items()) + '\n}\n')


def remove(path):
    shutil.rmtree(path) if os.path.isdir(path) else os.path.exists(path) and os.remove(path)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = arguments.add_argument
    add('binary'), add('--mib', type=int, default=512), add('--rounds', type=int, default=7)
    add('--work'), add('--python', default=sys.executable), add('--publish', action='store_true')
    a = arguments.parse_args()
    ours, python, missing, rows, began = os.path.abspath(a.binary), a.python, [], [], time.monotonic()
    run_of = provenance(python, a.rounds)
    own_memory()

    def has(module):
        found = subprocess.run([python, '-c', f'import {module}'], capture_output=True).returncode == 0
        found or missing.append(module)
        return found
    if not (has('safetensors') and has('gguf')):
        sys.exit(f'outputs are compared by safetensors and gguf: install {", ".join(missing)} for {python}')
    splitter = shutil.which('llama-gguf-split') or missing.append('llama-gguf-split')
    work = tempfile.mkdtemp(prefix='convert-jobs-', dir=a.work)
    try:
        block = hashlib.shake_256(b'bench').digest(1 << 20)
        at = lambda name: os.path.join(work, name)
        one, many, gguf, split = at('one.safetensors'), at('many'), at('one.gguf'), at('split')
        all_names = names(a.mib)
        safetensors_file(one, all_names, block)
        gguf_file(gguf, all_names, block)
        os.makedirs(many)
        count = 4
        parts = [all_names[k * len(all_names) // count:(k + 1) * len(all_names) // count] for k in range(count)]
        files = ['model-%05d-of-%05d.safetensors' % (k + 1, count) for k in range(count)]
        for part, file in zip(parts, files):
            safetensors_file(os.path.join(many, file), part, block)
        json.dump({'metadata': {}, 'weight_map': {n: f for part, f in zip(parts, files) for n in part}}, open(os.path.join(many, 'model.safetensors.index.json'), 'w'))
        model, recipe = at('llama'), at('mergekit.yml')
        llama_directory(model, a.mib, block)
        json.dump({'models': [{'model': model}], 'merge_method': 'passthrough', 'dtype': 'float16'}, open(recipe, 'w'))
        piece = (a.mib << 20) // 4
        convert = lambda source, target, *flags: [ours, 'convert', source, '-o', target, *flags]
        timed(convert(gguf, split + '/', '--shard-size', str(piece)))
        first = sorted(os.listdir(split))[0]
        program = lambda text: lambda source, target: [python, '-c', text, source, target]
        # job, source, target, our command, peers
        jobs = [
            ('merge a GGUF split', split, 'out.gguf', lambda s, t: convert(s, t), {'llama-gguf-split': splitter and (lambda s, t: [splitter, '--merge', os.path.join(s, first), t])}),
            ('split a GGUF in 4', gguf, 'out/', lambda s, t: convert(s, t, '--shard-size', str(piece)),
             {'llama-gguf-split': splitter and (lambda s, t: [splitter, '--split', '--split-max-size', f'{a.mib // 4}M', s, os.path.join(t, 'model')])}),
            ('one key of a GGUF changed, in a new file', gguf, 'out.gguf', lambda s, t: convert(s, t, '--metadata', 'general.name=other'),
             {'gguf-py, gguf_new_metadata': lambda s, t: [python, '-m', 'gguf.scripts.gguf_new_metadata', '--general-name', 'other', s, t]}),
            ('tensors renamed', one, 'out.safetensors', lambda s, t: convert(s, t, '--rename', 'model=net'), {'safetensors, numpy': program(RENAME)}),
            ('one layer extracted', one, 'out.safetensors', lambda s, t: convert(s, t, '--filter', 'model.layers.1.*'), {'safetensors, numpy': program(EXTRACT)}),
            ('4 safetensors shards merged', many, 'out.safetensors', lambda s, t: convert(s, t), {'safetensors, numpy': program(MERGE)}),
        ]
        others = {}
        if has('mergekit'):
            others['mergekit, passthrough'] = lambda s, t: [python, '-m', 'mergekit.scripts.run_yaml', recipe, t, '--lazy-unpickle']
        if has('mlx_lm'):
            others['mlx_lm convert'] = program(MLX)
        jobs.append(('a Hugging Face directory copied', model, 'out/', lambda s, t: convert(s, t), others))
        print('| job | program | time | ÷ `cp` | processor time ÷ `cp` | resident | anonymous |\n|---|---|--:|--:|--:|--:|--:|', flush=True)
        for job, source, target, own, peers in jobs:
            target = at(target)
            variants = {'ours': own, **{name: line for name, line in peers.items() if line}}

            def run(name, source=source, target=target, variants=variants):
                remove(target.rstrip('/'))
                if name.startswith('cp'):
                    copy = at('copy')
                    line = ['cp', '-r', '--reflink=never', source, copy]
                    sync = f'{shlex.join(line)} && find {shlex.quote(copy)} -type f -exec sync {{}} +'
                    remove(copy)
                    os.sync()
                    return timed(line if name == 'cp' else ['sh', '-c', sync])
                if target.endswith('/'):
                    os.makedirs(target)
                os.sync()
                return timed(variants[name](source, target))
            digests = {}
            for name in variants:
                run(name)
                read = subprocess.run([python, '-c', DIGESTS, target.rstrip('/')], capture_output=True, text=True, check=True)
                digests[name] = read.stdout
            if len(set(digests.values())) != 1 or digests['ours'].strip() == '{}':
                sys.exit(f'{job}: the outputs differ')
            order, samples = ['cp', 'cp, then sync', *variants], {}
            for number in range(a.rounds):
                for name in order[number % len(order):] + order[:number % len(order)]:
                    samples.setdefault(name, []).append(run(name))
                remove(at('copy'))
            remove(target.rstrip('/'))
            medians = {name: [statistics.median(column) for column in zip(*found)] for name, found in samples.items()}
            base = medians['cp']
            for name in order:
                m = medians[name]
                rows.append(row(job, name, samples[name], base[0]))
                print(f'| {job} | {name} | {m[0]:.2f} s | {m[0] / base[0]:.2f} | {m[1] / base[1]:.2f} | {m[2] / 1024:.0f} MiB | {m[3] / 1024:.0f} MiB |', flush=True)
        if a.publish:
            publish(rows, missing, time.monotonic() - began, run_of)
        if missing:
            print(f'\nnot measured, since they are not installed: {", ".join(missing)}')
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == '__main__':
    main()
