//! Tells what happens to the files of a directory, for some seconds: `watch DIR [SOURCE] [SECONDS]`.

use std::path::Path;
use std::time::{Duration, Instant};

use anamnesis_ppc::Namespace;
use anamnesis_ppc::source::{self, Want};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("watch DIR [SOURCE] [SECONDS]")?;
    let namespace = Namespace::scan(Path::new(&dir))?;
    let mut source = match arguments.next() {
        Some(name) => source::by_name(&name, &namespace)?,
        None => {
            let choice = source::best(Want::Misses, &namespace)?;
            eprintln!("{choice}");
            choice.source
        }
    };
    let seconds = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let files: Vec<_> = namespace
        .entries()
        .iter()
        .map(|entry| entry.inode)
        .collect();
    source.watch(&files)?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut events, mut told) = (Vec::new(), 0);
    while Instant::now() < end && source.wait(Duration::from_millis(100), &mut events)? {
        told += events.len();
        for event in events.drain(..) {
            let Some(file) = namespace.find(event.inode) else {
                continue;
            };
            println!(
                "{:?} {} {}+{} by {}",
                event.kind,
                file.path.display(),
                event.start,
                event.len,
                event.pid
            );
        }
    }
    eprintln!("{told} events, {} lost", source.lost());
    Ok(())
}
