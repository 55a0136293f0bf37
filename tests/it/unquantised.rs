//! Weights that are not quantised, from every format: their bytes equal what reading the tensor gives, and casts equal a single
//! rounding of the F32 value.

use std::collections::BTreeMap;
use std::path::Path;

use crate::support;
use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::writers::{StoredTensor, gguf, npy_header, safetensors};
use crate::support::{fixture, fixtures};
use anamnesis::{Checkpoint, Dtype, Encoding, Layout, OpenOptions, remember};
use half::{bf16, f16};

/// Whether safetensors has no name for this encoding.
fn has_no_safetensors_name(encoding: &Encoding) -> bool {
    use Dtype::{C32, C128, QINT8, QINT32, QUINT2X4, QUINT4X2, QUINT8};
    !matches!(encoding, Encoding::Plain(d) if !matches!(d, C32 | C128 | QINT8 | QUINT8 | QINT32 | QUINT4X2 | QUINT2X4))
}

/// Deflated, in Fortran order, big-endian, strided, tied and with a sign bit to flip.
#[test]
fn unquantised_tensors_of_every_fixture_are_copied() {
    let scratch = ScratchDir::new("unquantised");
    let out = scratch.path("out.safetensors");
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, format) in fixtures() {
        let Ok(checkpoint) = Checkpoint::open(&path) else {
            continue;
        };
        let shown = path.display();
        let remember = remember(&checkpoint).threads(1).overwrite(true);
        let plan = remember.plan().unwrap_or_else(|e| panic!("{shown}: {e}"));
        let plain = plan
            .jobs
            .iter()
            .filter(|job| job.scheme == "plain")
            .map(|job| &*job.output.name);
        let is_writable = |name: &&str| {
            !has_no_safetensors_name(&checkpoint.tensor(name).unwrap().info().encoding)
                && *name != "__metadata__"
        };
        let names: Vec<&str> = plain.filter(is_writable).collect();
        remember
            .clone()
            .filter(|name| names.contains(&name))
            .to_file(&out)
            .unwrap_or_else(|e| panic!("{shown}: {e}"));
        let found = Checkpoint::open(&out).unwrap_or_else(|e| panic!("{shown}: {e}"));
        assert_eq!(found.tensors().len(), names.len(), "{shown}");
        for name in names {
            let (found, expected) = (
                found.tensor(name).unwrap(),
                checkpoint.tensor(name).unwrap(),
            );
            assert_eq!(found.info().shape, expected.info().shape, "{shown}: {name}");
            assert_eq!(
                found.info().encoding,
                expected.info().encoding,
                "{shown}: {name}"
            );
            assert!(
                found.bytes().unwrap() == expected.bytes().unwrap(),
                "{shown}: the bytes of {name} differ"
            );
            let info = expected.info();
            let strided = !matches!(info.layout, Layout::RowMajor);
            let big_endian = info.endian == anamnesis::Endian::Big;
            let packed = info.packing != anamnesis::catalog::Packing::Raw;
            for (what, is) in [
                (format.name, true),
                ("strided", strided),
                ("big endian", big_endian),
                ("packed", packed),
            ] {
                *counts.entry(what).or_default() += usize::from(is);
            }
        }
    }
    println!("{counts:?}");
    for what in [
        "safetensors",
        "gguf",
        "npy",
        "npz",
        "pth",
        "strided",
        "big endian",
        "packed",
    ] {
        assert!(
            counts.get(what).is_some_and(|n| *n > 10),
            "too few of {what}: {counts:?}"
        );
    }
}

/// Floats of a dtype as bytes, and converted to F32: special values and random bits, or all values of a 16-bit dtype.
fn floats(dtype: Dtype) -> (Vec<u8>, Vec<f32>) {
    const N: usize = 4096;
    match dtype {
        Dtype::F64 => {
            let special = [
                0.0,
                -0.0,
                1e-46,
                7e-46,
                65519.99,
                65520.0,
                1e39,
                -1e300,
                f64::NAN,
                f64::INFINITY,
                0.1,
            ];
            let random_f32s = random_bytes(5, N * 4)
                .as_chunks()
                .0
                .iter()
                .map(|b| f64::from(f32::from_le_bytes(*b)) * 1.000_000_1)
                .collect();
            let all = [special.to_vec(), random_f32s].concat();
            #[allow(clippy::cast_possible_truncation)] // the cast under test rounds
            (
                all.iter().flat_map(|x| x.to_le_bytes()).collect(),
                all.iter().map(|x| *x as f32).collect(),
            )
        }
        Dtype::F32 => {
            let special = [
                0u32,
                1 << 31,
                1,
                0x3380_0000,
                0x3300_0000,
                0x477f_efff,
                0x477f_f000,
                0x7f7f_ffff,
                0x7f80_0001,
            ];
            let bits = special.map(u32::to_le_bytes).concat();
            let bytes = [bits, random_bytes(6, N * 4)].concat();
            let all = bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b))
                .collect();
            (bytes, all)
        }
        _ => {
            let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
            let to_f32 = |b: &[u8; 2]| match dtype {
                Dtype::F16 => f16::from_le_bytes(*b).to_f32(),
                _ => bf16::from_le_bytes(*b).to_f32(),
            };
            let all = bytes.as_chunks().0.iter().map(to_f32).collect();
            (bytes, all)
        }
    }
}

#[test]
fn casts_round_once() {
    for from in [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::BF16] {
        let (bytes, f32s) = floats(from);
        let n = f32s.len() as u64;
        let file = [
            StoredTensor::new("x", from.name(), &[n], bytes.clone()),
            StoredTensor::new("i", "I32", &[2], vec![1; 8]),
            StoredTensor::new("none", from.name(), &[0, 3], Vec::new()),
        ];
        let in_place = Checkpoint::from_bytes(safetensors(&file, &[])).unwrap();
        let streamed = (from != Dtype::BF16)
            .then(|| Checkpoint::from_bytes(big_endian_npz(from, &bytes)).unwrap());
        for to in [Dtype::F32, Dtype::F16, Dtype::BF16] {
            let expected: Vec<u8> = match to {
                _ if to == from => bytes.clone(),
                Dtype::F32 => f32s.iter().flat_map(|x| x.to_le_bytes()).collect(),
                Dtype::F16 => f32s
                    .iter()
                    .flat_map(|&x| f16::from_f32(x).to_le_bytes())
                    .collect(),
                _ => f32s
                    .iter()
                    .flat_map(|&x| bf16::from_f32(x).to_le_bytes())
                    .collect(),
            };
            for (what, checkpoint) in [
                ("in place", Some(&in_place)),
                ("streamed", streamed.as_ref()),
            ] {
                let Some(checkpoint) = checkpoint else {
                    continue;
                };
                let remember = remember(checkpoint).dtype(to).threads(1);
                let cast = remember.clone().cast(true).tensor("x").unwrap();
                assert_eq!(cast.spec.dtype, to);
                support::compare_bits(&cast.bytes, &expected, to)
                    .unwrap_or_else(|e| panic!("{from} to {to} {what}: {e}"));
                let kept = remember.tensor("x").unwrap();
                assert!(
                    kept.spec.dtype == from && kept.bytes == bytes,
                    "{from} {what}, without a cast"
                );
            }
            let all = remember(&in_place)
                .dtype(to)
                .cast(true)
                .threads(1)
                .all()
                .unwrap();
            let dtypes: Vec<_> = all.iter().map(|one| one.spec.dtype).collect();
            assert_eq!(dtypes, [to, Dtype::I32, to], "integers are not cast");
        }
    }
}

/// A deflated NPZ archive with one big-endian array `x` of these little-endian items.
fn big_endian_npz(dtype: Dtype, little_endian: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let width = usize::try_from(dtype.item_bytes().unwrap()).unwrap();
    let header = npy_header(
        &format!("'>f{width}'"),
        false,
        &[(little_endian.len() / width) as u64],
    );
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Deflated);
    zip.start_file("x.npy", options).unwrap();
    zip.write_all(&header).unwrap();
    let big_endian: Vec<u8> = little_endian
        .chunks(width)
        .flat_map(|item| item.iter().rev().copied())
        .collect();
    zip.write_all(&big_endian).unwrap();
    zip.finish().unwrap().into_inner()
}

#[test]
fn gguf_floats_are_copied() {
    let (f32s, f16s) = (random_bytes(1, 12 * 4), random_bytes(2, 10 * 2));
    let stored = [
        StoredTensor::new("a", "0", &[3, 4], f32s.clone()),
        StoredTensor::new("b", "1", &[10], f16s.clone()),
    ];
    let checkpoint = Checkpoint::from_bytes(gguf(false, &[], &stored)).unwrap();
    let all = remember(&checkpoint).all().unwrap();
    assert!(
        all[0].spec.dtype == Dtype::F32 && all[0].spec.shape[..] == [3, 4] && all[0].bytes == f32s
    );
    assert!(all[1].spec.dtype == Dtype::F16 && all[1].bytes == f16s);
}

/// Tensors that safetensors cannot store are refused one after the other, by name and with a remedy; without them the others
/// are written.
#[test]
fn tensors_without_a_safetensors_encoding_are_refused_by_name() {
    let scratch = ScratchDir::new("refused");
    let out = scratch.path("out.safetensors");
    for name in [
        "npz/odd_dtypes.npz",
        "npz/object.npz",
        "pth/sparse.pth",
        "pth/sparse_csr.pth",
        "pth/meta_device.pth",
        "pth/dtype/t_c128.pth",
        "pth/dtype/t_complex32.pth",
        "npy/be_c16.npy",
    ] {
        let checkpoint = Checkpoint::open(fixture(name)).unwrap();
        let mut left_out = Vec::<String>::new();
        loop {
            let is_kept = |name: &str| !left_out.iter().any(|out| out == name);
            let Err(error) = remember(&checkpoint)
                .threads(1)
                .filter(is_kept)
                .to_file(&out)
            else {
                break;
            };
            assert!(
                scratch.names().is_empty(),
                "{:?} remain after the refusal of {name}",
                scratch.names()
            );
            let text = error.to_string();
            let listed = checkpoint.catalog().tensors().iter().map(|t| &*t.name);
            let listed = listed.chain(checkpoint.catalog().refused().iter().map(|r| &*r.name));
            let refused = listed
                .filter(|tensor| text.contains(&format!("`{tensor}`")))
                .max_by_key(|tensor| tensor.len());
            let refused = refused.unwrap_or_else(|| panic!("{name}: {text} names no tensor"));
            let remedy = error.remedy().map(|remedy| remedy.to_string());
            assert!(
                remedy.is_some_and(|remedy| remedy.contains("leave")),
                "{name}: {text} has no remedy"
            );
            assert_eq!(error.kind().name(), "unsupported", "{text}");
            assert!(
                !left_out.iter().any(|out| out == refused),
                "{name}: {refused} was left out and is refused again"
            );
            left_out.push(refused.to_owned());
        }
        assert!(!left_out.is_empty(), "{name}: no tensor is refused");
        let rest = checkpoint
            .catalog()
            .tensors()
            .iter()
            .filter(|t| !left_out.iter().any(|out| **out == *t.name));
        let found = Checkpoint::open(&out).unwrap();
        assert_eq!(found.tensors().len(), rest.count(), "{name}");
        std::fs::remove_file(&out).unwrap();
    }
}

#[test]
fn the_name_of_safetensors_metadata_is_refused() {
    let scratch = ScratchDir::new("reserved");
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    zip.start_file("__metadata__.npy", zip::write::SimpleFileOptions::default())
        .unwrap();
    std::io::copy(
        &mut std::fs::File::open(fixture("npy/v1.npy")).unwrap(),
        &mut zip,
    )
    .unwrap();
    let checkpoint = Checkpoint::from_bytes(zip.finish().unwrap().into_inner()).unwrap();
    let error = remember(&checkpoint)
        .to_file(scratch.path("out.safetensors"))
        .unwrap_err();
    assert!(error.to_string().contains("`__metadata__`"), "{error}");
    assert!(scratch.names().is_empty());
    assert_eq!(
        remember(&checkpoint).all().unwrap().len(),
        1,
        "the name is allowed for outputs in memory"
    );
}

#[test]
fn options_of_opening_and_dequantising_apply_to_the_plan() {
    let open = |path: &Path| OpenOptions::new().void_as(Dtype::BF16).open(path).unwrap();
    let checkpoint = open(&fixture("npy/bf16.npy"));
    let one = remember(&checkpoint)
        .dtype(Dtype::F32)
        .cast(true)
        .all()
        .unwrap();
    assert_eq!(one[0].spec.dtype, Dtype::F32);
    let raw = checkpoint
        .tensors()
        .next()
        .unwrap()
        .bytes()
        .unwrap()
        .into_owned();
    let f32s: Vec<u8> = raw
        .as_chunks()
        .0
        .iter()
        .flat_map(|b| bf16::from_le_bytes(*b).to_f32().to_le_bytes())
        .collect();
    assert_eq!(one[0].bytes, f32s);
    for unsupported in [Dtype::F64, Dtype::I32, Dtype::F8_E4M3] {
        assert!(
            remember(&checkpoint)
                .dtype(unsupported)
                .plan()
                .unwrap_err()
                .to_string()
                .contains(unsupported.name())
        );
    }
    assert!(
        remember(&checkpoint)
            .tensor("no.such.tensor")
            .unwrap_err()
            .to_string()
            .contains("`no.such.tensor`")
    );
    let name = &checkpoint.catalog().tensors()[0].name;
    assert!(
        remember(&checkpoint)
            .tensor_into(name, &mut [0; 1])
            .is_err(),
        "a buffer of the wrong length"
    );
}
