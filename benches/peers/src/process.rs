//! A whole command, from start to exit, against a process that does nothing.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 200;

pub fn against_nothing(command: &[&str]) -> ExitCode {
    let me = std::env::current_exe().expect("this program has a path");
    let me = me.to_str().expect("a printable path");
    let mut nothing = Vec::new();
    let mut whole = Vec::new();
    for _ in 0..ROUNDS {
        nothing.push(time(me, &["nothing"]));
        whole.push(time(command[0], &command[1..]));
    }
    let row = |name: &str, times: &mut Vec<Duration>| {
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
    let floor = row("empty", &mut nothing);
    let ours = row(&command.join(" "), &mut whole);
    println!("\ndifference of the medians: {:.0} µs", ours - floor);
    ExitCode::SUCCESS
}

fn time(program: &str, args: &[&str]) -> Duration {
    let began = Instant::now();
    let status = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    let took = began.elapsed();
    assert!(
        status.expect("the command starts").success(),
        "{program} {args:?}"
    );
    took
}
