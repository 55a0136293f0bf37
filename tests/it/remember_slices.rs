//! Slices of dequantised weights: the elements of the whole output, whatever the slice, the tiles and the loader, and no
//! bytes read beyond the rows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::support::loaders::all_loaders;
use crate::support::random::{Random, random_bytes};
use crate::support::scheme_checks::{f16_bytes, random_scales};
use crate::support::scratch_dir::ScratchDir;
use crate::support::slices::{random_range, random_slice, selected_elements, sliced_shape};
use crate::support::writers::{StoredTensor, safetensors};
use crate::support::{files_below, fixture, fixtures};
use anamnesis::plan::{Decoder, Job, JobWork, Plan};
use anamnesis::sink::MemorySink;
use anamnesis::slice::TensorSlice;
use anamnesis::{Checkpoint, Dtype, Names, Remember, Remembered, remember};

/// Checkpoints with weights of every scheme, and with tensors of every storage.
fn checkpoints() -> Vec<(String, Checkpoint)> {
    let is_model = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        let ends = [".safetensors", ".pth", ".pt"];
        ends.iter().any(|end| name.ends_with(end)) && !name.contains("oracle")
    };
    let quantised = files_below(&fixture("quant")).into_iter().filter(is_model);
    let others = fixtures().into_iter().map(|(path, _)| path);
    let others = others.filter(|path| !path.to_string_lossy().contains("oracle"));
    let opened = quantised.chain(others);
    let named = |path: PathBuf| Some((path.display().to_string(), Checkpoint::open(path).ok()?));
    let mut all: Vec<_> = opened.filter_map(named).collect();
    all.push(("eetq".to_owned(), eetq()));
    all
}

/// A weight of EETQ, which has no fixture.
fn eetq() -> Checkpoint {
    let tensors = [
        StoredTensor::new("a.weight", "I8", &[96, 130], random_bytes(1, 96 * 130)),
        StoredTensor::new(
            "a.weight_scales",
            "F16",
            &[130],
            f16_bytes(&random_scales(2, 130)),
        ),
    ];
    Checkpoint::from_bytes(safetensors(&tensors, &[])).unwrap()
}

/// The outputs of a plan whose tiles have this many rows.
fn outputs(remember: &Remember<'_>, rows: u64) -> Vec<Remembered> {
    let mut plan = remember.plan().unwrap();
    for job in &mut plan.jobs {
        if let JobWork::Tiles { decoder, rows: own } = &mut job.work {
            let step = decoder.grid().step;
            *own = rows.min(*own).div_ceil(step) * step;
        }
    }
    let mut outputs: Vec<Remembered> = plan
        .jobs
        .iter()
        .map(|job| {
            let nbytes = usize::try_from(job.output.nbytes().unwrap()).unwrap();
            let (spec, bytes) = (job.output.clone(), vec![0xa5; nbytes]);
            Remembered { spec, bytes }
        })
        .collect();
    let memory = outputs
        .iter_mut()
        .map(|output| &mut output.bytes[..])
        .collect();
    remember.run(&plan, &mut MemorySink::new(memory)).unwrap();
    outputs
}

/// A slice of each output that can be sliced, by name. The elements of some tensors share bytes.
fn random_slices(random: &mut Random, whole: &[Remembered]) -> BTreeMap<String, TensorSlice> {
    let chosen = whole.iter().map(|output| {
        let slice = match output.spec.dtype.item_bytes() {
            Some(_) => random_slice(random, &output.spec.shape),
            None => TensorSlice::Whole,
        };
        (output.spec.name.to_string(), slice)
    });
    chosen.collect()
}

fn assert_sliced(
    what: &str,
    found: &[Remembered],
    whole: &[Remembered],
    slices: &BTreeMap<String, TensorSlice>,
) {
    assert_eq!(found.len(), whole.len(), "{what}");
    for (found, whole) in found.iter().zip(whole) {
        let (spec, slice) = (&whole.spec, &slices[&*whole.spec.name]);
        let what = format!("{what}: {spec} {slice:?}");
        assert_eq!(
            (&found.spec.name, found.spec.dtype),
            (&spec.name, spec.dtype),
            "{what}"
        );
        let Some(item) = spec.dtype.item_bytes() else {
            assert!(found.bytes == whole.bytes, "{what}");
            continue;
        };
        assert_eq!(
            found.spec.shape[..],
            sliced_shape(&spec.shape, slice),
            "{what}"
        );
        let item = usize::try_from(item).unwrap();
        let expected = selected_elements(&whole.bytes, &spec.shape, item, slice);
        assert!(found.bytes == expected, "{what}");
    }
}

#[test]
fn slices_have_the_elements_of_the_whole_output() {
    let (mut random, mut schemes, mut folders) = (Random(21), BTreeSet::new(), BTreeSet::new());
    let mut slices_of_weights = 0;
    for (name, checkpoint) in checkpoints() {
        for names in [Names::Stored, Names::HuggingFace] {
            if names == Names::HuggingFace && checkpoint.catalog().format() != "gguf" {
                continue;
            }
            let all = remember(&checkpoint).names(names).cast(true).threads(2);
            let Ok(plan) = all.plan() else { continue };
            if plan.check().is_err() {
                continue;
            }
            let whole = all.all().unwrap();
            schemes.extend(plan.jobs.iter().map(|job| job.scheme));
            folders.extend(Path::new(&name).ancestors().nth(2).map(Path::to_owned));
            for _ in 0..4 {
                let slices = random_slices(&mut random, &whole);
                let sliced = all.clone().slice(|spec| slices[&*spec.name].clone());
                let rows = [8, 40, 1_000, u64::MAX][random.below(4) as usize];
                assert_sliced(
                    &format!("{name}, tiles of {rows}"),
                    &outputs(&sliced, rows),
                    &whole,
                    &slices,
                );
                slices_of_weights += plan.jobs.iter().filter(|job| job.scheme != "plain").count();
            }
        }
    }
    // the names of the schemes of `SCHEMES`, or those that they give to their weights
    for scheme in [
        "plain",
        "ggml",
        "quanto",
        "torchao",
        "fp8",
        "bitsandbytes",
        "compressed-tensors",
        "quark",
        "mxfp4",
        "nvfp4",
        "mxfp6",
        "int8",
        "int4",
        "hqq",
        "mlx",
        "bitnet",
        "pth_quantizer",
        "auto-round",
        "gptq",
        "awq",
        "eetq",
    ] {
        assert!(
            schemes.contains(scheme),
            "no weight of scheme {scheme}, only {schemes:?}"
        );
    }
    for folder in ["quant/gptoss", "quant/modelopt"] {
        assert!(
            folders.contains(&fixture(folder)),
            "{folder} is missing from {folders:?}"
        );
    }
    assert!(slices_of_weights > 1_000, "only {slices_of_weights} slices");
}

/// Weights of many tiles, of which a slice has tiles that begin anywhere.
#[test]
fn large_weights_are_sliced_tile_by_tile_by_every_loader() {
    let scratch = ScratchDir::new("remember-slices");
    let tensors = [
        StoredTensor::new(
            "a.weight",
            "F8_E4M3",
            &[1_500, 1_000],
            random_bytes(1, 1_500_000),
        ),
        StoredTensor::new(
            "a.weight_scale_inv",
            "F32",
            &[12, 8],
            crate::support::scheme_checks::f32_bytes(&random_scales(2, 96)),
        ),
        StoredTensor::new("b.weight", "I8", &[500, 1_200], random_bytes(3, 600_000)),
        StoredTensor::new(
            "b.weight_scales",
            "F16",
            &[1_200],
            f16_bytes(&random_scales(4, 1_200)),
        ),
        StoredTensor::new("c", "U8", &[3, 700, 900], random_bytes(5, 1_890_000)),
    ];
    let path = scratch.path("in.safetensors");
    std::fs::write(&path, safetensors(&tensors, &[])).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let whole = remember(&checkpoint).all().unwrap();
    let boxed = |ranges: &[Range<u64>]| TensorSlice::Axes(ranges.to_vec());
    let joined = |ranges: &[Range<u64>]| TensorSlice::Joined {
        axis: 0,
        ranges: ranges.to_vec(),
    };
    for (a, b, c) in [
        (
            TensorSlice::Rows(3..1_201),
            TensorSlice::Rows(7..777),
            boxed(&[1..2, 5..600]),
        ),
        (
            boxed(&[0..1_500, 100..613]),
            boxed(&[0..1_200, 1..300]),
            boxed(&[0..3, 0..700, 450..900]),
        ),
        (
            boxed(&[129..1_400, 1..2]),
            boxed(&[33..1_100, 499..500]),
            boxed(&[0..3, 1..699, 3..4]),
        ),
        (
            joined(&[0..300, 750..1_050]),
            joined(&[10..20, 600..1_111]),
            joined(&[0..1, 2..3]),
        ),
    ] {
        let slices: BTreeMap<String, TensorSlice> = [("a.weight", a), ("b.weight", b), ("c", c)]
            .map(|(name, slice)| (name.to_owned(), slice))
            .into();
        let sliced = remember(&checkpoint)
            .threads(3)
            .slice(|spec| slices[&*spec.name].clone());
        let plan = sliced.plan().unwrap();
        assert_eq!(plan.jobs.len(), 3);
        assert_sliced("mapped", &sliced.all().unwrap(), &whole, &slices);
        for (name, loader) in all_loaders() {
            assert_sliced(
                name,
                &sliced.clone().loader(loader).all().unwrap(),
                &whole,
                &slices,
            );
        }
    }
}

/// The bytes of the file that these rows of a job need, in whole steps of its decoder's grid.
fn needed(job: &Job, checkpoint: &Checkpoint, elements: &Range<u64>) -> BTreeSet<(u32, u64)> {
    let JobWork::Tiles { decoder, .. } = &job.work else {
        panic!("{}: a stream has no rows", job.output)
    };
    let decoder: &dyn Decoder = &**decoder;
    let grid = decoder.grid();
    let start = elements.start / grid.cols / grid.step * grid.step;
    let end = elements
        .end
        .div_ceil(grid.cols)
        .next_multiple_of(grid.step)
        .min(grid.rows);
    let ranges = decoder
        .shared()
        .into_iter()
        .chain(decoder.inputs(start..end));
    let bytes = ranges.flat_map(|range| {
        let info = &checkpoint.catalog().tensors()[job.parts[range.part].tensor];
        let (file, first, len) = (info.bytes.file, info.bytes.start, range.bytes.len);
        range
            .bytes
            .starts()
            .flat_map(move |start| (start..start + len).map(move |at| (file, first + at)))
    });
    bytes.collect()
}

#[test]
fn a_slice_of_rows_reads_no_bytes_of_other_rows() {
    let (mut random, mut compared, mut smaller) = (Random(22), 0, 0);
    for (name, checkpoint) in checkpoints() {
        let Ok(plan) = remember(&checkpoint).plan() else {
            continue;
        };
        let rows: BTreeMap<String, Range<u64>> = plan
            .jobs
            .iter()
            .filter(|job| !job.output.shape.is_empty())
            .map(|job| {
                (
                    job.output.name.to_string(),
                    random_range(&mut random, job.output.shape[0]),
                )
            })
            .collect();
        let chosen = |name: &str, dtype: Dtype| match (rows.get(name), dtype.item_bytes()) {
            (Some(rows), Some(_)) => TensorSlice::Rows(rows.clone()),
            _ => TensorSlice::Whole,
        };
        let sliced = remember(&checkpoint)
            .slice(|spec| chosen(&spec.name, spec.dtype))
            .plan()
            .unwrap();
        for (sliced, whole) in sliced.jobs.iter().zip(&plan.jobs) {
            let stored = |job: &Job| {
                let catalog = checkpoint.catalog();
                job.reads(catalog).map(|read| read.len).sum::<u64>()
            };
            let is_tiled = |job: &Job| matches!(job.work, JobWork::Tiles { .. });
            let (Some(rows), true) = (rows.get(&*whole.output.name), is_tiled(whole)) else {
                continue;
            };
            let of_archive = whole
                .parts
                .iter()
                .any(|part| checkpoint.catalog().tensors()[part.tensor].member.is_some());
            if rows.is_empty() || of_archive || whole.output.dtype.item_bytes().is_none() {
                continue;
            }
            let row = whole.output.shape[1..].iter().product::<u64>();
            let allowed = needed(whole, &checkpoint, &(rows.start * row..rows.end * row));
            for read in sliced.reads(checkpoint.catalog()) {
                let beyond =
                    (read.start..read.end()).find(|at| !allowed.contains(&(read.file, *at)));
                assert_eq!(beyond, None, "{name}: {} {rows:?}", whole.output);
            }
            compared += 1;
            smaller += usize::from(stored(sliced) < stored(whole));
        }
    }
    assert!(
        compared > 300 && smaller > 150,
        "{smaller} of {compared} slices read less"
    );
}

#[test]
fn a_written_slice_is_a_checkpoint_of_its_shape() {
    let scratch = ScratchDir::new("written-slices");
    let source = fixture("quant/gptq");
    let model = files_below(&source)
        .into_iter()
        .find(|path| path.ends_with("model.safetensors"))
        .unwrap();
    let checkpoint = Checkpoint::open(model.parent().unwrap()).unwrap();
    let whole = remember(&checkpoint).all().unwrap();
    let half = |axis| TensorSlice::Shard {
        axis,
        rank: 1,
        of: 2,
    };
    let remember = remember(&checkpoint).slice(|spec| half(spec.shape.len() - 1));
    let (file, directory) = (scratch.path("out.safetensors"), scratch.path("out"));
    remember.to_file(&file).unwrap();
    remember.to_dir(&directory, 10_000).unwrap();
    for path in [file, directory.clone()] {
        let written = Checkpoint::open(&path).unwrap();
        assert_eq!(written.tensors().len(), whole.len());
        for output in &whole {
            let found = written.tensor(&output.spec.name).unwrap();
            let slice = half(output.spec.shape.len() - 1);
            assert_eq!(
                found.info().shape[..],
                sliced_shape(&output.spec.shape, &slice)
            );
            let item = output.spec.dtype.width();
            let expected = selected_elements(&output.bytes, &output.spec.shape, item, &slice);
            assert!(found.bytes().unwrap() == expected, "{}", output.spec);
        }
    }
    let config = |path: &Path| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(path.join("config.json")).unwrap()).unwrap()
    };
    let (found, source) = (config(&directory), config(model.parent().unwrap()));
    assert_eq!(found.get("hidden_size"), source.get("hidden_size"));
}

#[test]
fn a_slice_that_an_output_does_not_have_fails_the_plan() {
    let packed = StoredTensor::new("packed", "F4", &[4, 6], vec![0x21; 12]);
    let checkpoint = Checkpoint::from_bytes(safetensors(&[packed], &[])).unwrap();
    let plan = |slice: TensorSlice| -> anamnesis::Result<Plan> {
        remember(&checkpoint).slice(move |_| slice.clone()).plan()
    };
    let columns = |range| TensorSlice::Range { axis: 1, range };
    for (slice, part) in [
        (TensorSlice::Rows(3..5), "axis 0: 3..5 is out of bounds"),
        (
            columns(1..3),
            "axis 1 splits bytes that 2 elements share (F4)",
        ),
    ] {
        let error = plan(slice).unwrap_err().to_string();
        assert!(
            error.contains("weight `packed`") && error.contains(part),
            "{error}"
        );
    }
    let found = remember(&checkpoint)
        .slice(move |_| columns(2..4))
        .tensor("packed")
        .unwrap();
    assert_eq!(
        (&found.spec.shape[..], found.bytes),
        (&[4, 2][..], vec![0x21; 4])
    );
}
