//! The statements of a plan: refusals, warnings and outputs.

use anamnesis::plan::Plan;
use anamnesis::{Checkpoint, ErrorKind, remember};

/// The statement that a plan must make.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said {
    /// A weight is refused, with this text.
    Refused(&'static str),
    /// A warning has this text, and no weight is refused.
    Warned(&'static str),
    Nothing,
}

/// Readings of a file without a configuration, which the checkpoints that tests add to may be: they say nothing of what was added.
static OF_BASE: &[&str] = &[
    "I8 without configuration and marker",
    "the configuration names no pair that fits the shapes",
];

fn is_of_base(warning: &str) -> bool {
    OF_BASE.iter().any(|text| warning.contains(text))
}

impl Said {
    pub(super) fn holds(&self, plan: &Plan) -> bool {
        let unexplained =
            |error: &anamnesis::Error| matches!(error.kind(), ErrorKind::Unexplained(_));
        match self {
            Self::Refused(text) => {
                !plan.refused.is_empty()
                    && plan
                        .refused
                        .iter()
                        .all(|refused| unexplained(&refused.error))
                    && mentions(plan, text)
            }
            Self::Warned(text) => plan.refused.is_empty() && mentions(plan, text),
            Self::Nothing => {
                plan.refused.is_empty() && plan.unexplained.iter().all(|text| is_of_base(text))
            }
        }
    }
}

/// All statements, for messages.
pub(super) fn statements(plan: &Plan) -> String {
    let refused: Vec<String> = plan.refused.iter().map(|r| r.error.to_string()).collect();
    format!("{refused:?} {:?}", plan.unexplained)
}

/// Whether a refusal or a warning of the plan has the text.
pub(super) fn mentions(plan: &Plan, text: &str) -> bool {
    let refused = plan
        .refused
        .iter()
        .any(|r| r.error.to_string().contains(text));
    refused
        || plan
            .unexplained
            .iter()
            .any(|warning| warning.contains(text))
}

/// The name and the elements of every output that is made, and the plan.
pub(super) fn outputs(checkpoint: &Checkpoint) -> (Plan, Vec<(String, Vec<u8>)>) {
    let plan = remember(checkpoint).plan().unwrap();
    // refused weights are errors of a run
    let made: Vec<String> = plan
        .jobs
        .iter()
        .map(|job| job.output.name.to_string())
        .collect();
    let wanted = move |name: &str| made.iter().any(|made| made == name);
    let all = remember(checkpoint).filter(wanted).all().unwrap();
    let named = |output: anamnesis::Remembered| (output.spec.name.to_string(), output.bytes);
    (plan, all.into_iter().map(named).collect())
}
