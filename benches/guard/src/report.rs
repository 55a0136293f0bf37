//! The report of `guard check`.

use crate::baseline::{Count, Verdict};
use crate::case::{Counter, Metric};

/// One count of a case, compared with the baseline.
pub(crate) struct ReportRow<'c> {
    pub(crate) case: &'c str,
    pub(crate) metric: Metric,
    pub(crate) now: u64,
    pub(crate) before: Option<Count>,
    pub(crate) verdict: Verdict,
    /// Whether a regression fails the check: the environment is the baseline's, or does not matter for the metric.
    pub(crate) enforced: bool,
}

impl ReportRow<'_> {
    fn line(&self) -> String {
        let before = self.before.map(Count::is);
        let change = match before {
            Some(before) if before == self.now => "=".to_owned(),
            Some(before) if before > 0 => percent(before, self.now),
            _ => String::new(),
        };
        let word = match self.verdict {
            Verdict::Same => "",
            Verdict::Worse => "WORSE",
            Verdict::Better => "BETTER",
            Verdict::New => "NEW",
        };
        let before = before.map_or(String::new(), |before| before.to_string());
        let (case, metric, now) = (self.case, self.metric.name(), self.now);
        format!("{case:<36} {metric:<14} {before:>12} {now:>12} {change:>9} {word}")
            .trim_end()
            .to_owned()
    }
}

#[allow(clippy::cast_precision_loss)] // two digits are shown
fn percent(before: u64, now: u64) -> String {
    format!("{:+.2} %", (now as f64 / before as f64 - 1.0) * 100.0)
}

/// Prints the table and the deviations. Returns whether the check passes.
pub(crate) fn print(
    rows: &[ReportRow<'_>],
    removed: &[String],
    skipped: &[(Counter, String)],
) -> bool {
    println!(
        "{:<36} {:<14} {:>12} {:>12} {:>9}",
        "case", "metric", "baseline", "now", "change"
    );
    rows.iter().for_each(|row| println!("{}", row.line()));
    println!();
    for (counter, why) in skipped {
        println!("SKIPPED: {}: {why}", counter.name());
    }
    let list = |verdict: Verdict, heading: &str| {
        let found: Vec<_> = rows
            .iter()
            .filter(|row| row.enforced && row.verdict == verdict)
            .collect();
        if !found.is_empty() {
            println!("\n{heading}");
            found.iter().for_each(|row| println!("  {}", row.line()));
        }
        found.len()
    };
    list(
        Verdict::Better,
        "BETTER than the baseline by more than the tolerance. Move the baseline, so that losing the gain will be noticed:\n  cargo run --release -p anamnesis-guard -- check --update",
    );
    let worse = list(
        Verdict::Worse,
        "WORSE than the baseline by more than the tolerance:",
    );
    let new = list(Verdict::New, "NOT IN THE BASELINE (check --update):");
    if !removed.is_empty() {
        println!("\nIN THE BASELINE, but no longer counted (check --update):");
        removed.iter().for_each(|what| println!("  {what}"));
    }
    let enforced = rows.iter().filter(|row| row.enforced).count();
    println!(
        "\n{} counts, {enforced} compared with the baseline, {worse} worse",
        rows.len()
    );
    worse == 0 && new == 0 && removed.is_empty()
}
