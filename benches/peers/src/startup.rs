//! `peers startup COMMAND…`: the run time of a whole command against a process that does nothing.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::case::this_program;

const ROUNDS: usize = 200;

pub fn compare(command: &[&str]) -> ExitCode {
    let this_program = this_program();
    let mut empty = Vec::new();
    let mut whole = Vec::new();
    for _ in 0..ROUNDS {
        empty.push(time(&this_program, &["empty"]));
        whole.push(time(command[0], &command[1..]));
    }
    let print_row = |name: &str, times: &mut Vec<Duration>| {
        times.sort_unstable();
        let us = |d: Duration| d.as_nanos() as f64 / 1e3;
        let median = us(times[ROUNDS / 2]);
        println!(
            "| {name} | {median:.0} µs | {:.0} µs | {:.0} µs |",
            us(times[0]),
            us(times[ROUNDS - 1])
        );
        median
    };
    println!("| process | median of {ROUNDS} | min | max |");
    println!("|---|---|---|---|");
    let empty = print_row("empty", &mut empty);
    let whole = print_row(&command.join(" "), &mut whole);
    println!("\ndifference of the medians: {:.0} µs", whole - empty);
    ExitCode::SUCCESS
}

fn time(program: &str, args: &[&str]) -> Duration {
    let started = Instant::now();
    let status = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    let took = started.elapsed();
    assert!(
        status.expect("the command starts").success(),
        "{program} {args:?} failed"
    );
    took
}
