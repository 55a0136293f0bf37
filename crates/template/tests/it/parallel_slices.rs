//! The byte ranges that each worker of a parallel service reads. The oracles: together the slices of all workers are the
//! tensor, fused tensors split as separate ones do, and slices of small matrices computed by hand.

use std::collections::BTreeMap;

use anamnesis_template::StridedRange;
use anamnesis_template::parallel::{Rule, Rules, Split, share, slice};
use proptest::collection::vec;
use proptest::prelude::*;

const ALL_RULES: [Rule; 7] = [
    Rule::Replicated,
    Rule::Column,
    Rule::Row,
    Rule::Vocab,
    Rule::KeyValue,
    Rule::FusedQkv,
    Rule::FusedGateUp,
];

/// How often each byte is read by all workers together.
fn read_counts(
    ranges_of: impl Fn(&Split) -> Vec<StridedRange>,
    split: &Split,
) -> BTreeMap<u64, u32> {
    let mut counts = BTreeMap::new();
    for rank in 0..split.world {
        for byte in bytes(&ranges_of(&Split { rank, ..*split })) {
            *counts.entry(byte).or_default() += 1;
        }
    }
    counts
}

fn bytes(ranges: &[StridedRange]) -> Vec<u64> {
    ranges
        .iter()
        .flat_map(|range| {
            let len = range.len;
            range.starts().flat_map(move |start| start..start + len)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 600 }))]

    #[test]
    fn every_byte_is_read_once_or_by_all_workers(shape in vec(0..9u64, 0..4), item in 1..5u64, world in 1..6u32, rule in 0..7usize, heads in 0..9u64) {
        let split = Split { world, heads, kv_heads: 0, ..Split::default() };
        let nbytes: u64 = shape.iter().product::<u64>() * item;
        let counts = read_counts(|split| slice(ALL_RULES[rule], &shape, item, split).unwrap(), &split);
        prop_assert_eq!(counts.keys().copied().collect::<Vec<_>>(), (0..nbytes).collect::<Vec<_>>());
        // The dimension that is split; if there is none or it is 1, every worker reads everything.
        let outputs = shape.len().saturating_sub(2);
        let dim = match ALL_RULES[rule] {
            Rule::Replicated => None,
            Rule::Row => shape.len().checked_sub(1).filter(|&dim| dim > 0),
            Rule::Vocab => Some(0),
            _ => Some(outputs),
        };
        let whole = dim.and_then(|dim| shape.get(dim)).is_none_or(|&n| n == 1);
        let times = if whole { world } else { 1 };
        prop_assert!(counts.values().all(|&n| n == times));
    }

    /// Each worker reads whole heads of keys or values; if there are fewer heads than workers, adjacent workers read the same.
    #[test]
    fn key_and_value_heads_are_not_divided(kv_heads in 1..9u64, queries in 1..4u64, world in 1..9u32, width in 1..4u64) {
        let heads = kv_heads * queries;
        let split = Split { world, heads, kv_heads, ..Split::default() };
        let shape = [kv_heads * width, 2];
        let counts = read_counts(|split| slice(Rule::KeyValue, &shape, 1, split).unwrap(), &split);
        prop_assert_eq!(counts.len() as u64, kv_heads * width * 2);
        for rank in 0..world {
            let own = bytes(&slice(Rule::KeyValue, &shape, 1, &Split { rank, ..split }).unwrap());
            prop_assert!(!own.is_empty() && (own.len() as u64).is_multiple_of(width * 2));
            if u64::from(world) % kv_heads == 0 {
                // `QKVParallelLinear`: shard_id = tp_rank // num_kv_head_replicas
                let head = u64::from(rank) / (u64::from(world) / kv_heads);
                prop_assert_eq!(own, (head * width * 2..(head + 1) * width * 2).collect::<Vec<_>>());
            }
        }
    }

    /// A fused projection is split into the same rows as its parts when they are separate tensors.
    #[test]
    fn fused_projections_are_split_like_their_parts(kv_heads in 1..5u64, queries in 1..4u64, world in 1..5u32, width in 1..4u64, half in 1..9u64) {
        let heads = kv_heads * queries;
        for rank in 0..world {
            let split = Split { rank, world, heads, kv_heads, ..Split::default() };
            let part = |rule, rows: u64, from: u64| {
                let runs = slice(rule, &[rows, 3], 2, &split).unwrap();
                bytes(&runs).into_iter().map(move |byte| byte + from * 6).collect::<Vec<_>>()
            };
            let (q, k) = (heads * width, kv_heads * width);
            let mut separate = match q {
                1 => Vec::new(), // a single output is not split on its own, but is when fused
                _ => part(Rule::Column, q, 0),
            };
            let fused = bytes(&slice(Rule::FusedQkv, &[q + 2 * k, 3], 2, &split).unwrap());
            if q > 1 && k > 1 {
                separate.extend(part(Rule::KeyValue, k, q));
                separate.extend(part(Rule::KeyValue, k, q + k));
                prop_assert_eq!(fused, separate);
            }
            if half > 1 {
                let both = [part(Rule::Column, half, 0), part(Rule::Column, half, half)].concat();
                prop_assert_eq!(bytes(&slice(Rule::FusedGateUp, &[2 * half, 3], 2, &split).unwrap()), both);
            }
        }
    }

    #[test]
    fn experts_are_divided_evenly_and_in_order(experts in 1..20u64, world in 1..7u32, stacked in 1..4u64) {
        let rules = Rules::default();
        let split = Split { world, experts, ..Split::default() };
        let mut owners = Vec::new();
        for number in 0..experts {
            let name = format!("model.layers.3.mlp.experts.{number}.down_proj.weight");
            let is_read_by = |rank| !rules.slices(&name, &[4, 6], 1, &Split { rank, ..split }).unwrap().is_empty();
            let workers: Vec<u32> = (0..world).filter(|&rank| is_read_by(rank)).collect();
            prop_assert_eq!(workers.len(), 1);
            owners.push(workers[0]);
        }
        prop_assert!(owners.is_sorted());
        let counts: Vec<_> = (0..world).map(|rank| owners.iter().filter(|&&owner| owner == rank).count()).collect();
        prop_assert!(counts.is_sorted_by(|a, b| a >= b) && counts[0] - counts[counts.len() - 1] <= 1);
        // A tensor of all experts is divided the same.
        for (rank, &count) in (0..world).zip(&counts) {
            let stacked_tensor = rules.slices("blk.3.ffn_down_exps.weight", &[experts, stacked, 5], 1, &Split { rank, ..split }).unwrap();
            prop_assert_eq!(bytes(&stacked_tensor).len() as u64, count as u64 * stacked * 5);
        }
    }

    #[test]
    fn arbitrary_shapes_do_not_panic(shape in vec(prop_oneof![0..3u64, any::<u64>()], 0..5), item in any::<u64>(), rank in 0..5u32, world in 0..5u32,
            rule in 0..7usize, heads in any::<u64>(), kv_heads in any::<u64>(), experts in any::<u64>()) {
        let split = Split { rank, world, heads, kv_heads, experts };
        let _ = slice(ALL_RULES[rule], &shape, item, &split);
        let _ = Rules::default().slices("a.experts.b", &shape, item, &split);
    }
}

/// Queries, keys and values are equally many where the model states no heads of keys.
#[test]
fn a_fused_projection_without_key_heads_is_three_thirds() {
    for heads in [0, 4] {
        let split = Split {
            rank: 1,
            world: 2,
            heads,
            ..Split::default()
        };
        let found = share(Rule::FusedQkv, &[12, 5], &split).unwrap().unwrap();
        assert_eq!(
            (found.axis, &found.ranges[..]),
            (0, &[2..4, 6..8, 10..12][..])
        );
    }
}

#[test]
fn slices_of_small_matrices_equal_those_computed_by_hand() {
    let split = |rank| Split {
        rank,
        world: 2,
        ..Split::default()
    };
    let ranges = |rule, shape: &[u64], rank| -> Vec<String> {
        slice(rule, shape, 1, &split(rank))
            .unwrap()
            .iter()
            .map(StridedRange::to_string)
            .collect()
    };
    assert_eq!(ranges(Rule::Column, &[4, 10], 1), ["20+20"]);
    assert_eq!(ranges(Rule::Row, &[4, 10], 1), ["5+5 ×4 every 10"]);
    assert_eq!(ranges(Rule::Column, &[3, 4, 10], 1), ["20+20 ×3 every 40"]);
    assert_eq!(ranges(Rule::Row, &[3, 4, 10], 0), ["0+5 ×12 every 10"]);
    assert_eq!(ranges(Rule::Column, &[8], 1), ["4+4"]);
    assert_eq!(ranges(Rule::Row, &[8], 1), ["0+8"]);
    assert_eq!(ranges(Rule::FusedGateUp, &[8, 1], 1), ["2+2", "6+2"]);
    // A vocabulary of 100 is padded to 128, of which the second worker has 36.
    assert_eq!(
        (
            ranges(Rule::Vocab, &[100, 2], 0),
            ranges(Rule::Vocab, &[100, 2], 1)
        ),
        (vec!["0+128".into()], vec!["128+72".into()])
    );
    assert!(slice(Rule::Column, &[4], 1, &split(2)).is_err());
}

#[test]
fn tensor_names_select_the_rules() {
    let rules = Rules::default();
    for (name, rule) in [
        ("model.layers.0.self_attn.q_proj.weight", Rule::Column),
        ("model.layers.0.self_attn.q_proj.bias", Rule::Column),
        ("model.layers.0.self_attn.k_proj.weight", Rule::KeyValue),
        ("model.layers.0.self_attn.q_norm.weight", Rule::Replicated),
        ("model.layers.0.self_attn.o_proj.weight", Rule::Row),
        ("model.layers.0.self_attn.qkv_proj.weight", Rule::FusedQkv),
        ("model.layers.0.mlp.gate_up_proj.weight", Rule::FusedGateUp),
        ("model.layers.0.mlp.gate.weight", Rule::Replicated),
        ("model.layers.3.mlp.experts.7.w2.weight", Rule::Row),
        (
            "model.layers.3.mlp.shared_experts.up_proj.weight_scale_inv",
            Rule::Column,
        ),
        (
            "model.layers.0.self_attn.kv_a_proj_with_mqa.weight",
            Rule::Replicated,
        ),
        ("model.embed_tokens.weight", Rule::Vocab),
        ("lm_head.weight", Rule::Vocab),
        ("layers.0.attention.wo.weight", Rule::Row),
        ("blk.0.attn_q.weight", Rule::Column),
        ("blk.0.attn_k.bias", Rule::KeyValue),
        ("blk.0.attn_q_norm.weight", Rule::Replicated),
        ("blk.0.attn_output.weight", Rule::Row),
        ("blk.0.ffn_gate.weight", Rule::Column),
        ("blk.0.ffn_gate_inp.weight", Rule::Replicated),
        ("blk.0.ffn_down_exps.weight", Rule::Row),
        ("token_embd.weight", Rule::Vocab),
        ("output.weight", Rule::Vocab),
        ("output_norm.weight", Rule::Replicated),
    ] {
        assert_eq!(rules.rule(name), rule, "{name}");
    }
    for rule in ALL_RULES {
        assert_eq!(rule.to_string().parse::<Rule>().unwrap(), rule);
    }
    assert!(
        "columns"
            .parse::<Rule>()
            .unwrap_err()
            .to_string()
            .contains("gate-up")
    );
    assert_eq!(Rules::none().rule("lm_head.weight"), Rule::Replicated);
}
