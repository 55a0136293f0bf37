//! A policy in Rust that does what its configuration says, as a shared library: for the tests.

use anamnesis_ppc::{Access, Context, Io, Policy, Prefetch, Wants, export_policy};

#[derive(Default)]
struct Odd {
    what: String,
    failed: Option<String>,
}

impl Policy for Odd {
    fn wants(&self) -> Wants {
        Wants {
            prefetch: true,
            touch: self.what == "touch",
            ..Wants::default()
        }
    }

    fn init(&mut self, context: &Context) -> Result<(), String> {
        self.what = context.config.clone();
        match self.what.as_str() {
            "refuse" => Err("not today".into()),
            "panic in init" => panic!("at the beginning"),
            _ => Ok(()),
        }
    }

    fn start(&mut self) -> Vec<Prefetch> {
        let io = |start| Io {
            path: std::path::Path::new("a").into(),
            start,
            len: 1,
            device: Some(7),
        };
        let list = |lane, start| Prefetch {
            ios: vec![io(start)].into(),
            lane,
        };
        vec![list(1, 10), list(2, 20), list(1, 30), list(70, 40)]
    }

    fn prefetch(&mut self, miss: &Access) -> Option<Prefetch> {
        match self.what.as_str() {
            "panic" => panic!("at {}", miss.start),
            "fail" => self.failed = Some("the template is another model's".into()),
            _ => {}
        }
        None
    }

    fn touch(&mut self, access: &Access) -> Option<Prefetch> {
        self.failed = Some(format!("touched {}", access.path.display()));
        None
    }

    fn failed(&mut self) -> Option<String> {
        self.failed.take()
    }
}

export_policy!(Odd::default());
