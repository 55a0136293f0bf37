//! Template files are no larger than in the paper's Table 3, for models of the same shapes and the same number of workers.
//! `--nocapture` prints the figures, which `docs/template-format.md` lists.
//!
//! Table 3 counts the file of a whole service: tuples of path, offset and size for all workers,
//! consecutive ones merged. The paper does not state whether a worker reads exact slices or whole
//! tensors, so both are measured.

use anamnesis_template::parallel::{Rules, Split};
use anamnesis_template::{Template, TemplateBuilder, TemplateLimits, coverage};

use crate::checkpoint_shapes::{self, Model};

/// A gap of this size contains no whole page.
const PAGE: u64 = 4095;

/// Prints the size, and checks the limit, the coverage and the round trip.
fn check_size(what: &str, model: &Model, template: &Template, max_bytes: usize) {
    let bytes = template.to_bytes();
    let tuples = template.accesses().count() * 20;
    println!(
        "{what}: {} bytes (tuples of 4 + 8 + 8 bytes: {tuples}); {template}",
        bytes.len()
    );
    assert!(
        bytes.len() <= max_bytes,
        "{what}: {} bytes, more than {max_bytes}",
        bytes.len()
    );
    assert!(coverage(template, template).nbytes <= model.nbytes());
    assert_eq!(
        &Template::from_bytes(
            &bytes,
            &TemplateLimits {
                runs: u64::MAX,
                ..TemplateLimits::default()
            }
        )
        .unwrap(),
        template
    );
}

/// Shortens each access by a random number of pages and gives it a random time, so that no
/// sequence of accesses repeats.
fn irregular(template: &Template) -> Template {
    let mut builder = TemplateBuilder::new();
    for file in template.files() {
        builder.file(file.clone()).unwrap();
    }
    let (mut state, mut at) = (1u64, 0);
    for (rank, access) in template.accesses() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mut range = access.range();
        let bytes = &mut range.bytes;
        let cut = (state >> 58) * 4096 % bytes.len.max(1);
        (bytes.start, bytes.len) = (bytes.start + cut, bytes.len - cut);
        at += state >> 48;
        builder.access(rank, range, Some(at)).unwrap();
    }
    builder.finish()
}

#[test]
fn templates_of_qwen_72b_are_no_larger_than_in_the_paper() {
    let model = checkpoint_shapes::qwen_72b();
    assert_eq!(
        (model.tensors(), model.nbytes() / 1_000_000),
        (963, 145_412)
    );
    let rules = Rules::default();
    let exact = model.template(&rules, &model.split, 0);
    check_size(
        "Qwen2.5-72B, 4 workers, exact slices",
        &model,
        &exact,
        95_000,
    );
    let paged = model.template(&rules, &model.split, PAGE);
    check_size("Qwen2.5-72B, 4 workers, pages", &model, &paged, 95_000);
    let whole = model.template(&Rules::none(), &model.split, 0);
    check_size(
        "Qwen2.5-72B, 4 workers, every tensor whole",
        &model,
        &whole,
        95_000,
    );

    // Like a recording: irregular, with times.
    let irregular = irregular(&exact);
    check_size(
        "Qwen2.5-72B, 4 workers, irregular, with times",
        &model,
        &irregular,
        95_000,
    );

    // Everything but the headers is read, most of it by one worker.
    let covered = coverage(&whole, &exact);
    assert_eq!(covered.share(), 1.0);
    let norms = 161 * 8192 * 2 * 3; // also read by the three other workers, as are 80 biases
    assert!(
        exact.nbytes() - covered.nbytes <= norms,
        "{} {}",
        exact.nbytes(),
        covered.nbytes
    );
    assert_eq!(
        Template::from_json(exact.to_json().as_bytes(), &TemplateLimits::default()).unwrap(),
        exact
    );
}

#[test]
fn templates_of_deepseek_671b_are_no_larger_than_in_the_paper() {
    let model = checkpoint_shapes::deepseek_671b();
    assert_eq!(
        (model.tensors(), model.nbytes() / 1_000_000_000),
        (91_991, 688)
    );
    let rules = Rules::default();
    let experts = Split {
        experts: 256,
        ..model.split
    };
    let by_expert = model.template(&rules, &experts, 0);
    check_size(
        "DeepSeek-V3, 16 workers, whole experts each",
        &model,
        &by_expert,
        545_000,
    );
    let irregular = irregular(&by_expert);
    check_size(
        "DeepSeek-V3, 16 workers, whole experts each, irregular, with times",
        &model,
        &irregular,
        545_000,
    );
    let paged = model.template(&rules, &model.split, PAGE);
    check_size(
        "DeepSeek-V3, 16 workers, a part of every expert, pages",
        &model,
        &paged,
        545_000,
    );
    drop(paged);
    let whole = model.template(&Rules::none(), &model.split, 0);
    check_size(
        "DeepSeek-V3, 16 workers, every tensor whole",
        &model,
        &whole,
        545_000,
    );
}

/// Exact slices of DeepSeek-V3 have rows of 128 bytes: 1.7 thousand million runs, more than the default limit of runs.
#[test]
fn a_template_with_more_runs_than_the_default_limit_is_small_but_refused() {
    let model = checkpoint_shapes::deepseek_671b();
    let exact = model.template(&Rules::default(), &model.split, 0);
    let bytes = exact.to_bytes();
    println!(
        "DeepSeek-V3, 16 workers, exact slices: {} bytes; {exact}",
        bytes.len()
    );
    assert!(bytes.len() <= 545_000, "{} bytes", bytes.len());
    assert!(
        Template::from_bytes(&bytes, &TemplateLimits::default())
            .unwrap_err()
            .to_string()
            .contains("`runs`")
    );
    assert_eq!(
        Template::from_bytes(
            &bytes,
            &TemplateLimits {
                runs: u64::MAX,
                ..TemplateLimits::default()
            }
        )
        .unwrap(),
        exact
    );
}
