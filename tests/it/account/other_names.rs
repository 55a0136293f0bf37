//! Parts of weights under other names, prefixes and places than the schemes know, and files that have a part of a model.

use serde_json::{Value, json};

use anamnesis::{Checkpoint, remember};

use super::StoredCheckpoint;
use super::changes::{all, check, remove};
use super::said::Said::{self, Nothing, Refused, Warned};
use super::said::{mentions, statements};
use super::uploads::{Row, hold, hold_in, stored, with_file, with_metadata};
use crate::support::fixture;
use crate::support::scratch_dir::ScratchDir;

const WEIGHT: Row = ("model.layers.0.mlp.down_proj.weight", "F8_E4M3", &[24, 96]);

#[test]
fn scales_under_other_prefixes_and_separators() {
    let names = [
        "model.diffusion_model.model.layers.0.mlp.down_proj.weight_scale",
        "base_model.model.model.layers.0.mlp.down_proj.weight_scale",
        "_orig_mod.model.layers.0.mlp.down_proj.weight_scale",
        "layers.0.mlp.down_proj.weight_scale",
        "0.mlp.down_proj.weight_scale",
        "model.language_model.layers.0.mlp.down_proj.weight_scale_inv",
        "model.layers.0.mlp.down_proj/scale",
        "model.layers.0.mlp.down_proj:scale",
        "model/layers/0/mlp/down_proj/scale",
        "fp8_scale.model.layers.0.mlp.down_proj",
        "quantizers.layers.0.mlp.down_proj.scale",
        "scales",
        "fp8_scales",
        "weight_scale",
        // a scale of another module, by a name that only a scale has
        "model.layers.0.mlp.weight_scale",
        "model.layers.00.mlp.w2.weight_scale",
    ];
    let mut failures = Vec::new();
    for name in names {
        let plan = stored(&[WEIGHT, (name, "F32", &[24, 1])]).plan("model.safetensors");
        if !mentions(&plan, name) {
            failures.push(format!("{name}: {}", statements(&plan)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    // scales of norms, attention and the whole model in a file that was cast
    let honest: &[Row] = &[
        WEIGHT,
        ("model.layers.0.mlp.norm.scale", "BF16", &[24]),
        ("model.layers.0.attn.query_norm.scale", "BF16", &[24]),
        ("model.layers.1.mlp.scale_shift_table", "BF16", &[6, 24]),
        ("logit_scale", "F32", &[1]),
        ("patch_scale", "F32", &[1]),
    ];
    hold([("cast".to_owned(), stored(honest), Nothing)]);
}

#[test]
fn layers_are_scaled_alike() {
    let scaled: &[Row] = &[
        ("b.0.attn.to_q.weight", "F8_E4M3", &[8, 16]),
        ("b.0.attn.to_q.weight_scale", "F32", &[1]),
    ];
    let with = |row: Row| [scaled, &[row]].concat();
    let cases: Vec<(Vec<Row>, Said)> = vec![
        (
            with(("b.0.attn.to_k.weight", "F8_E4M3", &[8, 16])),
            Warned("b.0.attn.to_k.weight"),
        ),
        (
            with(("b.7.mlp.up.weight", "F8_E4M3", &[8, 16])),
            Warned("b.7.mlp.up.weight"),
        ),
        (with(("b.0.norm.weight", "F8_E4M3", &[8])), Nothing),
        (with(("text.encoder.weight", "F8_E4M3", &[8, 16])), Nothing),
    ];
    hold(
        cases
            .into_iter()
            .map(|(rows, said)| (rows[2].0.to_owned(), stored(&rows), said)),
    );
}

#[test]
fn older_marks_of_scaled_fp8_have_prefixes() {
    let prefix = "model.diffusion_model.";
    let file = fixture("quant/field/comfy-scaled-fp8-old/model.safetensors");
    let prefixed = |missing: &str| {
        let mut stored = StoredCheckpoint::read(&file);
        stored
            .tensors
            .retain(|tensor| missing.is_empty() || !tensor.name.ends_with(missing));
        for tensor in &mut stored.tensors {
            tensor.name = [prefix, &tensor.name].concat();
        }
        // another model of the file, which was cast
        stored.add_tensor("vae.0.proj.weight", "F8_E4M3", &[4, 4], &[1; 16]);
        stored
    };
    let whole = prefixed("");
    let plan = whole.plan("model.safetensors");
    assert!(Nothing.holds(&plan), "{}", statements(&plan));
    let is_mark = |name: &str| name.ends_with("scaled_fp8");
    assert!(plan.jobs.iter().all(|job| !is_mark(&job.output.name)));
    let missing = prefixed("q.scale_weight").plan("model.safetensors");
    assert!(
        Refused("it has no scale").holds(&missing),
        "{}",
        statements(&missing)
    );
}

#[test]
fn factors_without_codes_are_no_tensors_of_a_model() {
    let quantised: &[Row] = &[
        ("a.weight", "F8_E4M3", &[8, 16]),
        ("a.weight_scale", "F32", &[1]),
    ];
    for name in [
        "x.qzeros",
        "x.weight_scale",
        "x.weight_shape",
        "x.weight.absmax",
        "x.pre_quant_scale",
    ] {
        let row: Row = (name, "F32", &[4]);
        let rows = [quantised, &[row]].concat();
        hold([(name.to_owned(), stored(&rows), Refused(name))]);
        // a file of scales alone
        // shapes are stored without quantisation too
        let said = match name {
            "x.weight_shape" => Nothing,
            _ => Warned(name),
        };
        hold([(name.to_owned(), stored(&[row]), said)]);
    }
    let honest: &[Row] = &[
        ("x.weight", "BF16", &[8, 16]),
        ("y.scale", "F32", &[4]),
        ("z.scales", "F32", &[4]),
        ("self_attn.k_scale", "F32", &[1]),
    ];
    hold([(
        "honest".to_owned(),
        stored(&[quantised, honest].concat()),
        Nothing,
    )]);
}

#[test]
fn codes_in_other_dtypes_are_not_copied() {
    let mlx = |dtype: &str, width: usize| {
        let mut stored =
            StoredCheckpoint::read(&fixture("quant/mlx/affine4_g64/model.safetensors"));
        let codes = stored
            .tensors
            .iter_mut()
            .find(|tensor| tensor.dtype == "U32")
            .unwrap();
        codes.dtype = dtype.to_owned();
        let padding = vec![0; width - 4];
        let words = codes.bytes.chunks(4).map(|word| [word, &padding].concat());
        codes.bytes = words.collect::<Vec<_>>().concat();
        stored
    };
    hold(
        [("I64", 8), ("U64", 8), ("F32", 4)]
            .map(|(dtype, width)| (dtype.to_owned(), mlx(dtype, width), Refused("of MLX"))),
    );
    check(vec![
        (
            "quanto/qfloat8",
            remove("._scale"),
            Refused("`_scale` is missing"),
        ),
        (
            "modelopt/nvfp4_svd",
            all(vec![remove("svdquant_lora_a"), remove("svdquant_lora_b")]),
            Refused("`svdquant_lora_a` is missing"),
        ),
    ]);
}

#[test]
fn markers_that_are_in_no_layer() {
    let int8: &[Row] = &[
        ("b.0.q.weight", "I8", &[8, 64]),
        ("b.0.q.weight_scale", "F32", &[8, 1]),
    ];
    let option = json!({"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": 64});
    let mut marked = stored(int8);
    let text = option.to_string();
    marked.add_tensor("comfy_quant", "U8", &[text.len()], text.as_bytes());
    let header = |text: Value| {
        with_metadata(
            stored(int8),
            json!({"_quantization_metadata": text.to_string()}),
        )
    };
    hold([
        (
            "top".to_owned(),
            marked,
            Refused("`comfy_quant` is in no layer"),
        ),
        (
            "default".to_owned(),
            header(json!({"format_version": "1.0", "layers": {}, "default": option})),
            Refused("`default`"),
        ),
        (
            "none".to_owned(),
            header(json!({"format_version": "1.0", "layers": {}})),
            Nothing,
        ),
    ]);
    // ComfyUI's INT4 and rotated INT8 without their markers have the names and shapes of plain INT8
    let plan = stored(int8).plan("model.safetensors");
    let is_assumed = |note: &&String| note.contains("I8 without configuration and marker");
    assert!(
        plan.notes.iter().any(|note| is_assumed(&note)),
        "{:?}",
        plan.notes
    );
}

#[test]
fn parts_of_a_model_say_what_they_lack() {
    let first: &[Row] = &[
        ("b.0.q.weight", "I8", &[8, 64]),
        ("b.0.q.weight_scale", "F32", &[8, 1]),
    ];
    let header = |format: &str| {
        let layers = json!({"layers": {"b.0.q": {"format": format}}});
        json!({"_quantization_metadata": layers.to_string()})
    };
    let said = |other: &str| {
        let directory = ScratchDir::new("account-headers");
        with_metadata(stored(first), header("int8_tensorwise"))
            .write(&directory, "model-00001-of-00002.safetensors");
        with_metadata(stored(&[("norm.weight", "BF16", &[8])]), header(other))
            .write(&directory, "model-00002-of-00002.safetensors");
        remember(&Checkpoint::open(directory.path("")).unwrap())
            .plan()
            .unwrap()
    };
    let plan = said("int8_tensorwise");
    assert!(Nothing.holds(&plan), "{}", statements(&plan));
    let plan = said("float8_e4m3fn");
    assert!(
        Refused("differs between the files").holds(&plan),
        "{}",
        statements(&plan)
    );
    // the first shard alone
    hold_in(
        "model-00001-of-00002.safetensors",
        [(
            "shard".to_owned(),
            stored(&[WEIGHT]),
            Warned("may be in another file"),
        )],
    );
    // a rank alone
    let rank = |ranks: u64| {
        let config = json!({"architecture": "x", "mapping": {"world_size": ranks}});
        with_file(
            stored(&[("q.weight", "BF16", &[8, 16])]),
            "config.json",
            &config.to_string(),
        )
    };
    hold_in(
        "rank0.safetensors",
        [
            ("two".to_owned(), rank(2), Warned("`mapping.world_size`: 2")),
            ("one".to_owned(), rank(1), Nothing),
        ],
    );
}

#[test]
fn keys_and_factors_of_gguf() {
    let rows: &[Row] = &[("blk.0.attn_q.weight", "BF16", &[32, 32])];
    let mut factor = stored(rows);
    factor.add_tensor("blk.0.attn_q.scale", "F32", &[1], &0.5f32.to_le_bytes());
    hold_in(
        "model.gguf",
        [("scale".to_owned(), factor, Warned("blk.0.attn_q.scale"))],
    );
    let intact = StoredCheckpoint::opened(&fixture("model/scribe-Q8_0.gguf"));
    let keys = [
        (
            "quantize.imatrix.rotation",
            Warned("quantize.imatrix.rotation"),
        ),
        ("general.repack", Warned("general.repack")),
        ("permute.blk.0.attn_q", Warned("permute.blk.0.attn_q")),
        ("sparse.pattern", Warned("sparse.pattern")),
        ("codec", Warned("`codec`")),
        ("quantize.imatrix.file", Nothing),
        ("koboldcpp.x", Nothing),
        ("powerinfer.x", Warned("powerinfer.x")),
        ("general.nibble_order", Warned("general.nibble_order")),
        ("general.type", Warned("general.type")),
        ("llama.weights_offset", Warned("llama.weights_offset")),
        ("general.base_model.0.x", Nothing),
        ("general.sampling.sequence", Nothing),
        ("llama.expert_weights_scale", Nothing),
    ];
    hold_in(
        "model.gguf",
        keys.map(|(key, said)| {
            let mut stored = intact.clone();
            stored.metadata.insert(key.to_owned(), json!("x"));
            (key.to_owned(), stored, said)
        }),
    );
}

#[test]
fn matrices_under_names_of_activations_are_named() {
    let rows: &[Row] = &[
        ("l.0.q.weight", "F8_E4M3", &[8, 16]),
        ("l.0.q.weight_scale", "F32", &[1]),
    ];
    let with = |name: &'static str, shape: &'static [usize], said: Said| {
        let all = [rows, &[(name, "F32", shape)]].concat();
        (format!("{name} {shape:?}"), stored(&all), said)
    };
    hold([
        with("l.0.q.input_scale", &[], Nothing),
        with("l.0.q.input_scale", &[16], Nothing),
        with("l.0.q.input_scale", &[8, 16], Refused("input_scale")),
        with("l.0.q.act_scale", &[1], Nothing),
        with("l.0.q.act_scale", &[16], Refused("act_scale")),
        with("l.0.q.output_scale", &[8], Refused("output_scale")),
        with("l.0.k_proj.output_scale", &[8], Nothing),
        with("l.0.k_scale", &[2, 1, 1], Nothing),
        with("l.0.experts.input_scale", &[4, 16], Nothing),
    ]);
}

#[test]
fn files_of_matrices_and_descriptions() {
    let fp8: &[Row] = &[
        ("layers.0.q.weight", "F8_E4M3", &[8, 16]),
        ("layers.0.q.weight_scale", "F32", &[1]),
    ];
    let plain: &[Row] = &[("layers.0.q.weight", "BF16", &[8, 16])];
    let named = r#"{"layers.0.q": {"bits": 4}}"#;
    let nested = r#"{"a": {"layers.0.q.weight": "rot"}}"#;
    let files = [
        ("R.bin", "", Warned("`R.bin`")),
        ("rot.npy", "", Warned("`rot.npy`")),
        ("perm.npy", "", Warned("`perm.npy`")),
        ("codebook.npy", "", Warned("`codebook.npy`")),
        ("flat_matrices.pth", "", Warned("`flat_matrices.pth`")),
        ("description.json", named, Warned("`description.json`")),
        ("layer_bits.json", nested, Warned("`layer_bits.json`")),
        ("act_scales.pt", "", Nothing),
        ("other.json", r#"{"a": 1, "layers": {"0": 2}}"#, Nothing),
        ("broken.json", "{", Nothing),
        ("model.safetensors.index.json", nested, Nothing),
    ];
    hold(
        files.map(|(name, text, said)| (name.to_owned(), with_file(stored(fp8), name, text), said)),
    );
    hold(files.map(|(name, text, _)| {
        (
            name.to_owned(),
            with_file(stored(plain), name, text),
            Nothing,
        )
    }));
}
