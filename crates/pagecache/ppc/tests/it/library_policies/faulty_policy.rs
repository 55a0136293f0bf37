//! A policy in Rust that the tests load as a shared library. Its configuration selects how it fails.

use anamnesis_ppc::{
    FileAccess, FileRange, Interests, Policy, PolicyContext, PrefetchRequest, export_policy,
};

#[derive(Default)]
struct FaultyPolicy {
    mode: String,
    failed: Option<String>,
}

impl Policy for FaultyPolicy {
    fn interests(&self) -> Interests {
        Interests {
            prefetch: true,
            touch: self.mode == "touch",
            ..Interests::default()
        }
    }

    fn init(&mut self, context: &PolicyContext) -> Result<(), String> {
        self.mode = context.config.clone();
        match self.mode.as_str() {
            "fail in init" => Err("rejected by the policy".into()),
            "panic in init" => panic!("in init"),
            _ => Ok(()),
        }
    }

    fn start(&mut self) -> Vec<PrefetchRequest> {
        let range = |start| FileRange {
            path: std::path::Path::new("a").into(),
            start,
            len: 1,
            device: Some(7),
        };
        let list = |queue, start| PrefetchRequest {
            ranges: vec![range(start)].into(),
            queue,
        };
        vec![list(1, 10), list(2, 20), list(1, 30), list(70, 40)]
    }

    fn prefetch(&mut self, miss: &FileAccess) -> Option<PrefetchRequest> {
        match self.mode.as_str() {
            "panic" => panic!("at {}", miss.start),
            "fail" => self.failed = Some("the template describes another model".into()),
            _ => {}
        }
        None
    }

    fn touch(&mut self, access: &FileAccess) -> Option<PrefetchRequest> {
        self.failed = Some(format!("touched {}", access.path.display()));
        None
    }

    fn failed(&mut self) -> Option<String> {
        self.failed.take()
    }
}

export_policy!(FaultyPolicy::default());
