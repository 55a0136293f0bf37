//! Generated zip archives: NPZ and PyTorch.

/// A zip archive of stored members. Payloads are aligned to `align`, as PyTorch aligns them to 64.
fn zip(members: &[(String, Vec<u8>)], align: usize) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    let short = |n: usize| u16::try_from(n).expect("a small number").to_le_bytes();
    let long = |n: usize| u32::try_from(n).expect("a small file").to_le_bytes();
    for (name, bytes) in members {
        let at = file.len();
        // PyTorch pads with an extra field: the id "FB", a length, and that many bytes "Z"
        let bare = at + 30 + name.len() + 4;
        let padding = bare.next_multiple_of(align) - bare;
        let sum = crc32fast::hash(bytes).to_le_bytes();
        let sizes = [long(bytes.len()), long(bytes.len())].concat();
        // version, flags, method, time and date, then what both headers share
        let common = [
            &[20, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
            &sum,
            &sizes,
            &short(name.len()),
        ]
        .concat();
        let local = [
            b"PK\x03\x04",
            &common[..],
            &short(padding + 4),
            name.as_bytes(),
            b"FB",
            &short(padding),
        ]
        .concat();
        file.extend(local);
        file.extend(std::iter::repeat_n(b'Z', padding));
        file.extend(bytes);
        let rest = [0; 12]; // no extra field, no comment, one disk, no attributes
        directory.extend(
            [
                b"PK\x01\x02\x14\0",
                &common[..],
                &rest,
                &long(at),
                name.as_bytes(),
            ]
            .concat(),
        );
    }
    let (at, count) = (file.len(), short(members.len()));
    file.extend(&directory);
    file.extend(
        [
            b"PK\x05\x06\0\0\0\0",
            &count[..],
            &count,
            &long(directory.len()),
            &long(at),
            &[0, 0],
        ]
        .concat(),
    );
    file
}

/// An NPZ file of `count` arrays of four F32.
pub(super) fn arrays(count: usize) -> Vec<u8> {
    let array = || {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }";
        let mut bytes = b"\x93NUMPY\x01\0\x76\0".to_vec();
        bytes.extend(format!("{header:<117}\n").bytes());
        bytes.extend([0; 16]);
        bytes
    };
    let members: Vec<_> = (0..count)
        .map(|i| (format!("layer_{}/array_{}.npy", i / 50, i % 50), array()))
        .collect();
    zip(&members, 1)
}

/// A PyTorch state dict of `count` tensors of four F32, each with a storage of its own.
pub(super) fn state(count: usize) -> Vec<u8> {
    let text = |text: &str| {
        let len = u32::try_from(text.len()).expect("short").to_le_bytes();
        [b"X", &len[..], text.as_bytes()].concat()
    };
    let mut pickle = b"\x80\x02}q\0(".to_vec();
    for i in 0..count {
        pickle.extend(text(&format!(
            "encoder.layer.{}.attention.{}.weight",
            i / 20,
            i % 20
        )));
        pickle.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        pickle.extend(text("storage"));
        pickle.extend(b"ctorch\nFloatStorage\n");
        pickle.extend(text(&i.to_string()));
        pickle.extend(text("cpu"));
        // 4 elements; from 0, shape (4,), stride (1,), no gradient, no hooks
        pickle.extend(b"K\x04tQK\0K\x04\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR");
    }
    pickle.extend(b"u.");
    let head = [("data.pkl", pickle), ("byteorder", b"little".to_vec())];
    let tail = ("version".to_owned(), b"3\n".to_vec());
    let storages = (0..count).map(|i| (format!("data/{i}"), vec![0; 16]));
    let head = head
        .into_iter()
        .map(|(name, bytes)| (name.to_owned(), bytes));
    let members = head
        .chain(storages)
        .chain([tail])
        .map(|(name, bytes)| (format!("state/{name}"), bytes));
    zip(&members.collect::<Vec<_>>(), 64)
}
