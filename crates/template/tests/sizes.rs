//! The sizes in the paper's Table 3, for models of the same shapes and the same number of workers.
//! `--nocapture` prints the figures.
//!
//! Table 3 counts the file of a whole service: tuples of path, offset and size for all workers,
//! consecutive ones merged. The paper does not state whether a worker reads exact slices or whole
//! tensors, so both are measured.

mod shapes;

use anamnesis_template::parallel::{Rules, Split};
use anamnesis_template::{Template, TemplateBuilder, TemplateLimits, coverage};
use shapes::Model;

/// A gap of this size contains no whole page.
const PAGE: u64 = 4095;

fn size(what: &str, model: &Model, template: &Template, most: usize) {
    let bytes = template.to_bytes();
    let tuples = template.accesses().count() * 20;
    println!(
        "{what}: {} bytes (tuples of 4 + 8 + 8 bytes: {tuples}); {template}",
        bytes.len()
    );
    assert!(
        bytes.len() <= most,
        "{what}: {} bytes, more than {most}",
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

/// Shortens each access by a random number of pages and gives it a random time, so that nothing
/// repeats.
fn rough(template: &Template) -> Template {
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
fn qwen_72b() {
    let model = shapes::qwen_72b();
    assert_eq!(
        (model.tensors(), model.nbytes() / 1_000_000),
        (963, 145_412)
    );
    let rules = Rules::default();
    let exact = model.template(&rules, &model.split, 0);
    size(
        "Qwen2.5-72B, 4 workers, exact slices",
        &model,
        &exact,
        95_000,
    );
    let paged = model.template(&rules, &model.split, PAGE);
    size("Qwen2.5-72B, 4 workers, pages", &model, &paged, 95_000);
    let whole = model.template(&Rules::none(), &model.split, 0);
    size(
        "Qwen2.5-72B, 4 workers, every tensor whole",
        &model,
        &whole,
        95_000,
    );

    // Like a recording: irregular, with times.
    let rough = rough(&exact);
    size(
        "Qwen2.5-72B, 4 workers, irregular, with times",
        &model,
        &rough,
        95_000,
    );

    // The model without its headers is read, most of it once.
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
fn deepseek_671b() {
    let model = shapes::deepseek_671b();
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
    size(
        "DeepSeek-V3, 16 workers, whole experts each",
        &model,
        &by_expert,
        545_000,
    );
    let rough = rough(&by_expert);
    size(
        "DeepSeek-V3, 16 workers, whole experts each, irregular, with times",
        &model,
        &rough,
        545_000,
    );
    let paged = model.template(&rules, &model.split, PAGE);
    size(
        "DeepSeek-V3, 16 workers, a part of every expert, pages",
        &model,
        &paged,
        545_000,
    );
    drop(paged);
    let whole = model.template(&Rules::none(), &model.split, 0);
    size(
        "DeepSeek-V3, 16 workers, every tensor whole",
        &model,
        &whole,
        545_000,
    );
}

/// Exact slices have rows of 128 bytes: 1.7 thousand million runs, more than the default limit
/// permits to iterate.
#[test]
fn deepseek_671b_exact() {
    let model = shapes::deepseek_671b();
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
