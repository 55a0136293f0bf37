//! Service ids and content keys are the same in every version: pinned values, which an independent Python implementation
//! computed, and the hash as the documentation specifies it.

use anamnesis_template::{ContentKey, File, ServiceId, service_id};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

fn files() -> Vec<File> {
    let mut first = File::new("model-00001-of-00002.safetensors", 4_877_660_776).unwrap();
    first.key = Some(ContentKey::of(b"the first header"));
    vec![
        first,
        File::new("model-00002-of-00002.safetensors", 4_932_751_008).unwrap(),
    ]
}

#[test]
fn ids_equal_the_pinned_values() {
    assert_eq!(service_id([], []).to_string(), PINNED[0]);
    assert_eq!(service_id(&files(), []).to_string(), PINNED[1]);
    assert_eq!(
        service_id(&files(), [("tp", "4"), ("loader", "vllm")]).to_string(),
        PINNED[2]
    );
    assert_eq!(ContentKey::of(b"the first header").to_string(), PINNED[3]);
}

/// Computes the id step by step, as `service_id` documents it.
#[test]
fn ids_equal_the_documented_hash() {
    let mut bytes = b"anamnesis service id 1\0".to_vec();
    let push_number = |bytes: &mut Vec<u8>, n: u64| bytes.extend(n.to_le_bytes());
    let push_text = |bytes: &mut Vec<u8>, text: &str| {
        push_number(bytes, text.len() as u64);
        bytes.extend(text.as_bytes());
    };
    push_number(&mut bytes, 2);
    for file in files() {
        push_text(&mut bytes, &file.path);
        push_number(&mut bytes, file.nbytes);
        bytes.push(u8::from(file.key.is_some()));
        bytes.extend(file.key.iter().flat_map(|key| key.0));
    }
    push_number(&mut bytes, 1);
    push_text(&mut bytes, "tp");
    push_text(&mut bytes, "4");
    assert_eq!(
        service_id(&files(), [("tp", "4")]).0,
        Sha256::digest(&bytes)[..16]
    );
}

#[test]
fn an_id_is_parsed_from_its_text_form_and_from_no_other() {
    let id = service_id(&files(), []);
    assert_eq!(id.to_string().parse::<ServiceId>().unwrap(), id);
    for invalid in [
        "",
        "0",
        &"0".repeat(33),
        &"G".repeat(32),
        &"A".repeat(32),
        &"é".repeat(16),
    ] {
        assert!(invalid.parse::<ServiceId>().is_err(), "{invalid}");
    }
}

proptest! {
    #[test]
    fn the_order_of_files_and_parameters_and_times_do_not_change_the_id(mtime in any::<i64>(), pairs in prop::collection::vec(("[a-c]{1,3}", "[0-9]{1,2}"), 0..6)) {
        let mut other = files();
        other.reverse();
        other[0].mtime = Some(mtime);
        let ascending = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let descending = pairs.iter().rev().map(|(k, v)| (k.as_str(), v.as_str()));
        prop_assert_eq!(service_id(&files(), ascending.clone()), service_id(&other, descending));
        other[1].nbytes += 1;
        prop_assert_ne!(service_id(&files(), ascending.clone()), service_id(&other, ascending));
    }

    /// String lengths are hashed, so different lists of parameters have different input.
    #[test]
    fn moving_a_byte_from_key_to_value_changes_the_id(a in "[ab]{0,4}", b in "[ab]{0,4}", c in "[ab]{0,4}", d in "[ab]{0,4}") {
        let same = (&a, &b) == (&c, &d);
        prop_assert_eq!(service_id([], [(&*a, &*b)]) == service_id([], [(&*c, &*d)]), same);
    }
}

/// The values of the ids in `ids_equal_the_pinned_values`.
const PINNED: [&str; 4] = [
    "7acd1b71f72660df1b39445e8bc12ff3",
    "cc0534074f41231e4dbac10abe6d255d",
    "4a41790506c555e183c74a1884de9944",
    "929a8b44b2070f86f6da4646b7dbe7df",
];
