//! Outputs at URLs: the same files as in a local directory, the index last, and nothing after a failure.

mod failures;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::web_server::TestServer;
use crate::support::writers::{StoredTensor, safetensors};
use anamnesis::plan::TensorSpec;
use anamnesis::remote::{RemoteOptions, Variables};
use anamnesis::sink::{FileSink, Sharding, TensorWriter};
use anamnesis::{
    CancelToken, Checkpoint, Encoding, ErrorKind, OpenOptions, Remedy, Result, remember,
};

const PART: u64 = 64 << 10;
const SHARD: u64 = 1_000_000;
const INDEX: &str = "/bucket/out/model.safetensors.index.json";

fn options(server: &TestServer) -> RemoteOptions {
    let mut options = RemoteOptions::default();
    options.first_byte = Duration::from_millis(500);
    options.pause = Duration::from_millis(5);
    options.retries = 1;
    options.part = PART;
    options.upload_memory = 4 * PART;
    options.variables = Variables::from_iter([
        ("AWS_ENDPOINT_URL", &*server.url("")),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ]);
    options
}

fn server() -> TestServer {
    let server = TestServer::start();
    server.latency(Duration::from_millis(1));
    server
}

/// A checkpoint of 24 tensors of several dtypes in turn, so that files have them in another order than the checkpoint.
fn source(scratch: &ScratchDir) -> Checkpoint {
    let tensors: Vec<_> = (0..24)
        .map(|i| {
            let (dtype, width) = [("BF16", 2), ("U8", 1), ("F32", 4)][i % 3];
            let bytes = random_bytes(i as u64, 40_000 * width);
            StoredTensor::new(&format!("t{i:02}"), dtype, &[200, 200], bytes)
        })
        .collect();
    let directory = scratch.path("source");
    fs::create_dir(&directory).unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(directory.join(name), bytes).unwrap();
    write("model.safetensors", &safetensors(&tensors, &[]));
    write("config.json", br#"{"model_type": "test"}"#);
    write("tokenizer.json", &random_bytes(7, 300_000));
    Checkpoint::open(&directory).unwrap()
}

/// Writes to a URL with several threads.
fn write(
    server: &TestServer,
    checkpoint: &Checkpoint,
    url: &str,
    sharding: Sharding,
    overwrite: bool,
    token: &CancelToken,
) -> Result<Vec<String>> {
    let remember = remember(checkpoint)
        .overwrite(overwrite)
        .threads(3)
        .cancel(token);
    let mut sink = remember.safetensors(url, sharding)?.remote(options(server));
    remember.run(&remember.plan()?, &mut sink)?;
    let files = sink.files().map(|file| file.display().to_string());
    Ok(files.collect())
}

fn write_shards(
    server: &TestServer,
    checkpoint: &Checkpoint,
    overwrite: bool,
) -> Result<Vec<String>> {
    let (url, token) = ("s3://bucket/out/", CancelToken::new());
    write(
        server,
        checkpoint,
        url,
        Sharding::Shards(SHARD),
        overwrite,
        &token,
    )
}

/// A program that writes its own tensors in the order of the writer: in memory for a few parts, and the same file as locally.
#[test]
fn tensors_of_a_program_are_uploaded_one_by_one() {
    let scratch = ScratchDir::new("upload-writer");
    let checkpoint = source(&scratch);
    let server = server();
    let write_to = |sink: FileSink| {
        let specs = checkpoint.tensors().map(|tensor| {
            let info = tensor.info();
            let Encoding::Plain(dtype) = info.encoding else {
                panic!("a plain tensor")
            };
            TensorSpec::new(&*info.name, info.shape.clone(), dtype)
        });
        let mut writer = TensorWriter::begin(sink, specs.collect()).unwrap();
        let order: Vec<String> = writer.order().map(str::to_owned).collect();
        assert!(!order.is_sorted());
        for name in &order {
            let bytes = checkpoint.tensor(name).unwrap().bytes().unwrap();
            for piece in bytes.chunks(30_000) {
                writer.write(name, piece).unwrap();
            }
        }
        writer.finish().unwrap()
    };
    let local = scratch.path("out.safetensors");
    write_to(FileSink::new(&local, Sharding::SingleFile));
    let url = "s3://bucket/out/one.safetensors";
    write_to(FileSink::new(url, Sharding::SingleFile).remote(options(&server)));
    let stored = &objects(&server)["/bucket/out/one.safetensors"];
    assert!(*stored == fs::read(local).unwrap());
}

/// The files of a directory, by their paths in the bucket.
fn local_files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let files = entries.map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        (
            format!("/bucket/out/{name}"),
            fs::read(entry.path()).unwrap(),
        )
    });
    files.collect()
}

fn objects(server: &TestServer) -> BTreeMap<String, Vec<u8>> {
    let paths = server.paths().into_iter();
    paths
        .map(|path| (path.clone(), server.object(&path).unwrap()))
        .collect()
}

#[test]
fn a_url_gets_the_files_of_a_local_directory_and_the_index_last() {
    let (server, scratch) = (server(), ScratchDir::new("upload"));
    let checkpoint = source(&scratch);
    remember(&checkpoint)
        .to_dir(scratch.path("local"), SHARD)
        .unwrap();
    let local = local_files(&scratch.path("local"));
    let files = write_shards(&server, &checkpoint, false).unwrap();
    assert_eq!((files.len(), local.len()), (3, 6));
    assert_eq!(files[0], "s3://bucket/out/model-00001-of-00003.safetensors");
    assert!(objects(&server) == local);
    let events = server.events();
    assert!(
        events
            .last()
            .unwrap()
            .starts_with(&format!("complete {INDEX}")),
        "{events:?}"
    );
    // parts begin while others are on their way, and shards appear when all parts are there
    let first_of = |what: &str| {
        events
            .iter()
            .position(|event| event.starts_with(what))
            .unwrap()
    };
    let last_part = events
        .iter()
        .rposition(|event| event.starts_with("part") && event.contains("/model-0000"))
        .unwrap();
    assert!(last_part < first_of("complete"), "{events:?}");
    let last_complete = events
        .iter()
        .rposition(|event| event.starts_with("complete /bucket/out/model-0000"))
        .unwrap();
    assert!(
        last_complete < first_of("put /bucket/out/config.json"),
        "{events:?}"
    );
    assert!(server.most_parts_at_a_time() <= 4);
    // the whole of it is read again
    let mut reading = options(&server);
    reading.first_byte = Duration::from_secs(5);
    let again = OpenOptions::new()
        .remote(reading)
        .open("s3://bucket/out")
        .unwrap();
    assert_eq!(again.tensors().len(), 24);
}

#[test]
fn a_file_at_a_url_equals_the_local_one() {
    let (server, scratch) = (server(), ScratchDir::new("upload-file"));
    let checkpoint = source(&scratch);
    remember(&checkpoint)
        .to_file(scratch.path("local"))
        .unwrap();
    let token = CancelToken::new();
    let url = "s3://bucket/a.safetensors";
    let to = |overwrite| {
        write(
            &server,
            &checkpoint,
            url,
            Sharding::SingleFile,
            overwrite,
            &token,
        )
    };
    assert_eq!(to(false).unwrap(), [url]);
    assert!(
        server.object("/bucket/a.safetensors").unwrap() == fs::read(scratch.path("local")).unwrap()
    );
    let error = to(false).unwrap_err();
    assert_eq!(error.remedy(), Some(Remedy::AllowOverwrite), "{error}");
    assert_eq!(error.path(), Some(Path::new(url)));
    to(true).unwrap();
    // a failure leaves the old file
    server.upload_fault("complete", "403 Forbidden", usize::MAX);
    to(true).unwrap_err();
    assert_eq!(server.paths(), ["/bucket/a.safetensors"]);
    assert_eq!(server.open_uploads(), Vec::<String>::new());
}

#[test]
fn what_is_there_is_kept_or_replaced_with_the_old_index_first() {
    let (server, scratch) = (server(), ScratchDir::new("upload-over"));
    let checkpoint = source(&scratch);
    write_shards(&server, &checkpoint, false).unwrap();
    let old = objects(&server);
    server.events();
    let error = write_shards(&server, &checkpoint, false).unwrap_err();
    assert_eq!(error.remedy(), Some(Remedy::AllowOverwrite), "{error}");
    assert_eq!(server.events(), Vec::<String>::new());
    // equal companion files stay, and other ones are refused
    server.put("/bucket/other/config.json", "{}");
    let token = CancelToken::new();
    let other = "s3://bucket/other/";
    let refused = write(
        &server,
        &checkpoint,
        other,
        Sharding::Shards(SHARD),
        false,
        &token,
    );
    assert_eq!(
        refused.unwrap_err().path(),
        Some(Path::new("s3://bucket/other/config.json"))
    );
    // a file that only the old index names, and one that belongs to another program
    server.put("/bucket/out/README.md", "kept");
    write_shards(&server, &checkpoint, true).unwrap();
    let events = server.events();
    let changes: Vec<_> = events
        .iter()
        .filter(|event| !event.starts_with("part") && !event.starts_with("create"))
        .collect();
    assert_eq!(*changes[0], format!("delete {INDEX}"));
    assert!(
        changes[1..4]
            .iter()
            .all(|event| event.starts_with("delete /bucket/out/model-0000"))
    );
    assert_eq!(**changes.last().unwrap(), format!("complete {INDEX}"));
    let mut new = objects(&server);
    assert_eq!(new.remove("/bucket/out/README.md").unwrap(), b"kept");
    new.remove("/bucket/other/config.json");
    assert!(new == old);
}

#[test]
fn companion_files_are_copied_from_a_url() {
    let (server, scratch) = (server(), ScratchDir::new("upload-copy"));
    let checkpoint = source(&scratch);
    write_shards(&server, &checkpoint, false).unwrap();
    let mut reading = options(&server);
    reading.first_byte = Duration::from_secs(5);
    let far = OpenOptions::new()
        .remote(reading)
        .open("s3://bucket/out/")
        .unwrap();
    let token = CancelToken::new();
    let to = |url| write(&server, &far, url, Sharding::Shards(SHARD), false, &token);
    to("s3://bucket/copy/").unwrap();
    remember(&checkpoint)
        .to_dir(scratch.path("local"), SHARD)
        .unwrap();
    let near = Checkpoint::open(scratch.path("local")).unwrap();
    remember(&near)
        .to_dir(scratch.path("again"), SHARD)
        .unwrap();
    let again = local_files(&scratch.path("again"));
    assert_eq!(again.len(), 6);
    for (path, bytes) in again {
        let copy = server.object(&path.replace("/out/", "/copy/"));
        assert!(copy.unwrap() == bytes, "{path}");
    }
    // its own source
    let error = to("s3://bucket/out/").unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::InvalidArgument(_)),
        "{error}"
    );
    // a web server lists nothing, so that known names are tried
    server.put(
        "/web/model.safetensors",
        fs::read(scratch.path("source/model.safetensors")).unwrap(),
    );
    server.put("/web/config.json", r#"{"model_type": "test"}"#);
    server.put("/web/special.json", "{}");
    let web = Checkpoint::open(server.url("/web/model.safetensors")).unwrap();
    remember(&web)
        .to_dir(scratch.path("from-web"), SHARD)
        .unwrap();
    let found = local_files(&scratch.path("from-web"));
    assert!(found.contains_key("/bucket/out/config.json"));
    assert!(!found.contains_key("/bucket/out/special.json"));
}
