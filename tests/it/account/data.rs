//! Integers that are data of a model or of its training, and integers that may be codes.

use super::said::Said::{self, Nothing, Refused, Warned};
use super::uploads::{Row, hold, stored};

#[test]
fn integers_at_the_top_of_a_file_are_data() {
    let cases: Vec<(Vec<Row>, Said)> = vec![
        (
            vec![("vertices", "F32", &[500, 3]), ("faces", "I32", &[1000, 3])],
            Warned("`faces`"),
        ),
        (
            vec![
                ("observations", "U8", &[10, 64, 64]),
                ("rewards", "F32", &[10]),
            ],
            Warned("`observations`"),
        ),
        (
            vec![
                ("adjacency", "I8", &[200, 200]),
                ("gcn.weight", "F32", &[4, 4]),
            ],
            Nothing,
        ),
        (
            vec![
                ("router.expert_map", "I32", &[61, 256]),
                ("x.weight", "BF16", &[8, 8]),
            ],
            Nothing,
        ),
        // a finite scalar quantiser
        (
            vec![
                ("quantizer._basis", "I32", &[6]),
                ("quantizer._levels", "I32", &[6]),
                ("quantizer.implicit_codebook", "F32", &[100, 6]),
            ],
            Nothing,
        ),
        // with something that decodes them
        (
            vec![
                ("pq_codes", "U8", &[500, 8]),
                ("pq_centroids", "F32", &[2, 4]),
            ],
            Refused("`pq_codes`"),
        ),
        (
            vec![("table", "I8", &[64, 64]), ("codebook", "F32", &[64])],
            Refused("`table`"),
        ),
        // in a module
        (
            vec![("m.table", "I8", &[64, 64]), ("m.x", "F32", &[64])],
            Refused("`m.table`"),
        ),
    ];
    hold(
        cases
            .into_iter()
            .map(|(rows, said)| (rows[rows.len() - 1].0.to_owned(), stored(&rows), said)),
    );
}

#[test]
fn dtypes_that_are_never_without_a_scale() {
    for dtype in ["F4", "F6_E2M3", "F8_E8M0"] {
        let mut checkpoint = stored(&[("a.weight", "BF16", &[64, 64])]);
        let bytes = match dtype {
            "F4" => 64 * 32,
            "F6_E2M3" => 64 * 48,
            _ => 64 * 64,
        };
        checkpoint.add_tensor("x.weight", dtype, &[64, 64], &vec![1; bytes]);
        hold([(dtype.to_owned(), checkpoint, Refused("`x.weight`"))]);
    }
    let packed: &[Row] = &[("x.weight_packed", "F8_E4M3", &[64, 64])];
    hold([(
        "packed".to_owned(),
        stored(packed),
        Refused("x.weight_packed"),
    )]);
}

#[test]
fn integers_as_a_bias_are_refused() {
    let weight: &[Row] = &[
        ("q.weight", "F8_E4M3", &[8, 16]),
        ("q.weight_scale", "F32", &[8, 1]),
    ];
    for (dtype, said) in [
        ("I32", Refused("`q.bias`")),
        ("I8", Refused("`q.bias`")),
        ("BF16", Nothing),
    ] {
        let rows = [weight, &[("q.bias", dtype, &[8])]].concat();
        hold([(dtype.to_owned(), stored(&rows), said)]);
    }
}
