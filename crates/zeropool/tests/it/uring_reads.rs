//! tokio-uring reads a file into buffers and parts of buffers, through the page cache and with direct I/O; the oracle is the
//! file's content.
#![cfg(all(target_os = "linux", feature = "tokio-uring", not(miri)))]

use std::os::unix::fs::OpenOptionsExt;

use tokio_uring::buf::BoundedBuf;
use zeropool::BufferPool;

#[test]
fn uring_reads_fill_buffers_with_the_file() {
    let path = std::env::temp_dir().join(format!("zeropool-uring-{}", std::process::id()));
    let content: Vec<u8> = (0u32..20_000).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&path, &content).unwrap();
    if let Err(error) = std::panic::catch_unwind(|| tokio_uring::builder().start(async {})) {
        let why = error.downcast_ref::<String>().cloned().unwrap_or_default();
        eprintln!("SKIPPED: io_uring is not available: {why}");
        return;
    }
    tokio_uring::start(async {
        let pool = BufferPool::new();
        let file = tokio_uring::fs::File::open(&path).await.unwrap();
        // reads the length of the buffer, not its larger capacity
        let (read, buffer) = file.read_exact_at(pool.get(content.len()), 0).await;
        read.unwrap();
        assert_eq!(&buffer[..], &content[..]);
        let (read, part) = file.read_exact_at(buffer.slice(..100), 400).await;
        read.unwrap();
        assert_eq!(&part[..], &content[400..500]);

        let direct = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(&path);
        match direct {
            Err(error) => eprintln!("SKIPPED: direct I/O is not available: {error}"),
            Ok(file) => {
                let file = tokio_uring::fs::File::from_std(file);
                let (read, buffer) = file
                    .read_at(pool.get(content.len().next_multiple_of(4096)), 0)
                    .await;
                let read = read.unwrap();
                assert_eq!(&buffer[..read], &content[..]);
            }
        }
        file.close().await.unwrap();
    });
    std::fs::remove_file(&path).unwrap();
}
