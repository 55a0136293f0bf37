//! The results of a load: a stream or a list of tensors, in the order of the caller, in a buffer of the caller, as typed
//! views, with checksums verified.

use crate::support::fixture;
use crate::support::loaders::all_loaders;
use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::tensor_files::{varied_tensors, write_and_open};
use crate::support::writers::{StoredTensor, safetensors};
use anamnesis::load::{MmapLoader, PreadLoader};
use anamnesis::{Checkpoint, ErrorKind, Limits, load};
use zeropool::BufferPool;

#[test]
fn a_stream_yields_every_tensor_within_a_small_budget() {
    let scratch = ScratchDir::new("load-stream");
    let tensors: Vec<_> = (0..60)
        .map(|i| {
            StoredTensor::new(
                &format!("t{i:02}"),
                "U8",
                &[1 << 20],
                random_bytes(i, 1 << 20),
            )
        })
        .collect();
    let checkpoint = write_and_open(&scratch, &safetensors(&tensors, &[]));
    for (name, loader) in all_loaders()
        .into_iter()
        .filter(|(name, _)| !name.contains("page"))
    {
        // the budget holds a few extents and not all: buffers of dropped tensors must be reused
        let pool = BufferPool::builder().budget(48 << 20).build().unwrap();
        let load = load(&checkpoint)
            .loader(loader)
            .pool(&pool)
            .read_ahead(4 << 20);
        let mut names = Vec::new();
        load.stream(|stream| {
            for tensor in stream {
                let tensor = tensor?;
                assert_eq!(
                    tensor.bytes(),
                    random_bytes(names.len() as u64, 1 << 20),
                    "{name}"
                );
                names.push(tensor.name().to_owned());
            }
            Ok(())
        })
        .unwrap();
        assert!(names.len() == 60 && names.is_sorted(), "{name}");
        // a consumer may stop early
        load.stream(|stream| stream.next().unwrap().map(drop))
            .unwrap();
        assert_eq!(pool.stats().in_use, 0, "{name}");
    }
}

#[test]
fn tensors_are_in_the_order_of_the_caller() {
    let checkpoint = Checkpoint::from_bytes(varied_tensors()).unwrap();
    let loaded = load(&checkpoint)
        .order(|a, b| b.name.cmp(&a.name))
        .run()
        .unwrap();
    let names: Vec<_> = loaded
        .tensors()
        .iter()
        .map(|tensor| tensor.name())
        .collect();
    assert_eq!(names, ["ffffff", "eeeee", "dddd", "ccc", "bb", "a"]);
}

#[test]
fn a_tensor_over_the_limit_is_not_loaded() {
    let checkpoint = Checkpoint::from_bytes(varied_tensors()).unwrap();
    // in reverse order, so that the first tensor is the one over the limit
    let error = load(&checkpoint)
        .order(|a, b| b.name.cmp(&a.name))
        .limits(Limits {
            tensor_bytes: 1000,
            ..Limits::default()
        })
        .run()
        .unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Limit {
                limit: "tensor_bytes",
                needed: 420_000,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_tensor_is_loaded_into_a_buffer_of_its_size() {
    let checkpoint = Checkpoint::from_bytes(varied_tensors()).unwrap();
    let mut out = vec![0; 105];
    load(&checkpoint).tensor_into("bb", &mut out).unwrap();
    assert_eq!(out, *checkpoint.tensor("bb").unwrap().bytes().unwrap());
    assert!(
        load(&checkpoint)
            .tensor_into("bb", &mut out[1..])
            .unwrap_err()
            .to_string()
            .contains("105")
    );
}

#[test]
fn a_missing_tensor_is_an_error_with_its_name() {
    let checkpoint = Checkpoint::from_bytes(varied_tensors()).unwrap();
    assert!(
        load(&checkpoint)
            .tensor("no.such.tensor")
            .unwrap_err()
            .to_string()
            .contains("no.such.tensor")
    );
}

/// Loaded bytes have the alignment that they have in the file; a borrowed tensor that is misaligned is copied.
#[test]
fn typed_views_exist_where_the_bytes_are_aligned() {
    let mut aligned = 0;
    for pad in 0..8 {
        let floats = StoredTensor::new("a", "F32", &[100], random_bytes(1, 400));
        let checkpoint =
            Checkpoint::from_bytes(safetensors(&[floats], &[("pad", &"x".repeat(pad))])).unwrap();
        let own = load(&checkpoint).tensor("a").unwrap();
        assert!(
            own.view::<f32>().is_some(),
            "copied into a buffer of its own"
        );
        let floats = load(&checkpoint)
            .loader(PreadLoader::new())
            .tensor("a")
            .unwrap();
        assert_eq!(
            floats.view::<f32>().is_some(),
            floats.info().bytes.start.is_multiple_of(4)
        );
        let Some(view) = floats.view::<f32>() else {
            continue;
        };
        assert!(view.len() == 100 && floats.view::<u32>().is_none());
        assert_eq!(view[1].to_le_bytes(), floats.as_ref()[4..8]);
        aligned += 1;
    }
    assert_eq!(aligned, 2);
}

/// The checksum of an archive member is verified when its bytes are copied, and not when they are borrowed.
#[test]
fn a_wrong_checksum_is_an_error_unless_the_bytes_are_borrowed() {
    let scratch = ScratchDir::new("load-damaged");
    let path = scratch.path("in.pth");
    let mut bytes = std::fs::read(fixture("pth/checkpoint.pth")).unwrap();
    let whole = Checkpoint::from_bytes(bytes.clone()).unwrap();
    let info = whole
        .catalog()
        .tensors()
        .iter()
        .max_by_key(|info| info.nbytes())
        .unwrap();
    let at = usize::try_from(info.bytes.start).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    for (name, loader) in all_loaders() {
        let load = load(&checkpoint).loader(loader);
        let error = load.tensor(&info.name).unwrap_err();
        assert!(error.to_string().contains("checksum"), "{name}: {error}");
        let mut out = vec![0; usize::try_from(info.nbytes()).unwrap()];
        let error = load.tensor_into(&info.name, &mut out).unwrap_err();
        assert!(error.to_string().contains("checksum"), "{name}: {error}");
    }
    let borrowed = load(&checkpoint)
        .borrow_mapped()
        .loader(MmapLoader::new())
        .tensor(&info.name);
    // a file of a few pages is kept in memory and borrowed from there
    let is_mapped = cfg!(feature = "mmap") || checkpoint.sources()[0].in_memory().is_some();
    assert_eq!(borrowed.is_ok(), is_mapped);
}
