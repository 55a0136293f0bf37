//! Prints the page-cache events of the files in a directory for some seconds: `watch DIR [SOURCE] [SECONDS]`.

use std::path::Path;
use std::time::{Duration, Instant};

use anamnesis_ppc::Namespace;
use anamnesis_ppc::source::{self, CaptureMode};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments
        .next()
        .ok_or("usage: watch DIR [SOURCE] [SECONDS]")?;
    let namespace = Namespace::scan(Path::new(&dir))?;
    let mut source = match arguments.next() {
        Some(name) => source::by_name(&name, &namespace)?,
        None => {
            let selected = source::best(CaptureMode::Misses, &namespace)?;
            eprintln!("{selected}");
            selected.source
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
    let (mut events, mut count) = (Vec::new(), 0);
    while Instant::now() < end && source.wait(Duration::from_millis(100), &mut events)? {
        count += events.len();
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
    eprintln!("{count} events, {} lost", source.lost());
    Ok(())
}
