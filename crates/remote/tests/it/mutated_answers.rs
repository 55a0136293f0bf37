//! Answers and files of others with some bytes changed, cut or repeated: none makes a reader panic. The fuzz targets `hub`,
//! `bucket` and `headers` go further from the same seeds (`tests/hostile/fuzz`).

use anamnesis_remote::fuzzing::{
    BUCKET_OPERATIONS, archive_files, bucket_operation, files_of_index, header_entry, hub_listing,
    modelscope_list, registry_manifest, stated_digests,
};

use super::server::{archive, digest_of};

/// A generator, so that each run tries the same inputs.
struct Mutations(u64);

impl Mutations {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % end.max(1)
    }

    /// The seed with one to four changes.
    fn mutated(&mut self, seed: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            let end = (at + 1 + self.below(24)).min(bytes.len());
            match self.below(6) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 if at < bytes.len() => bytes[at] = MARKS[self.below(MARKS.len())],
                2 => bytes.truncate(at),
                3 => drop(bytes.drain(at..end)),
                4 => {
                    let part = bytes[at..end].repeat(1 + self.below(40));
                    bytes.splice(at..at, part);
                }
                _ => bytes.extend_from_slice(&seed[..self.below(seed.len())]),
            }
        }
        bytes
    }
}

/// Bytes with a meaning in JSON and in XML, and some without one.
const MARKS: &[u8] = b"<>&\"{}[],:;\\/\0\xff9";

const ROUNDS: usize = 3000;

#[test]
fn mutated_lists_of_the_hub_and_indexes_are_read_or_refused() {
    let seeds: [&[u8]; 4] = [
        br#"{"sha":"0123abcd","siblings":[{"rfilename":"a.safetensors"},{"rfilename":"b/c.json","size":1}]}"#,
        br#"{"x":[[1],{"y":null}],"sha":"a","siblings":[],"z":"\u00e9\ud83d\ude00"}"#,
        br#"{"sha":"abc","siblings":[{"rfilename":"a","blobId":"1"},{"rfilename":"b","lfs":{"sha256":"2"}},{"rfilename":"c","lfs":null,"blobId":"3"}]}"#,
        br#"{"metadata":{"total_size":4},"weight_map":{"a":"1.safetensors","b":"1.safetensors","c":"2.safetensors"}}"#,
    ];
    let (mut mutations, mut read) = (Mutations(1), 0);
    for seed in seeds {
        for _ in 0..ROUNDS {
            let text = mutations.mutated(seed);
            if let Ok((commit, names)) = hub_listing(&text, "", 1000) {
                read += 1;
                assert!(commit.bytes().all(|byte| byte.is_ascii_alphanumeric()));
                assert!(names.iter().all(|name| !name.contains('/')), "{names:?}");
            }
            if let Ok(stated) = stated_digests(&text, "", 1000) {
                read += 1;
                assert!(
                    stated
                        .files
                        .iter()
                        .all(|(name, digest)| !name.is_empty() && !digest.is_empty())
                );
            }
            read += usize::from(files_of_index(&text).is_some());
        }
    }
    assert!(read > 500, "only {read} were read");
}

#[test]
fn mutated_manifests_lists_and_archives_are_read_or_refused() {
    let digest = digest_of(b"");
    let manifest = format!(
        r#"{{"layers":[{{"mediaType":"application/vnd.docker.ai.gguf.v3","digest":"{digest}","size":3}},{{"mediaType":"a/b","digest":"{digest}","size":0,"annotations":{{"org.cncf.model.filepath":"a/b.json"}}}}]}}"#
    );
    let archive = archive(&[("a/b.json", b"{}"), (&"n".repeat(120), b"words")]);
    let list = format!(
        r#"{{"Code":200,"Data":{{"Files":[{{"Path":"a/b.json","Type":"blob","Size":3,"Sha256":"{}"}},{{"Path":"a","Type":"tree"}}]}}}}"#,
        digest.replace("sha256:", "")
    );
    let (mut mutations, mut read) = (Mutations(4), 0);
    for _ in 0..3 * ROUNDS {
        if let Ok(names) = modelscope_list(&mutations.mutated(list.as_bytes()), 2000) {
            read += usize::from(!names.is_empty());
            assert!(
                names
                    .iter()
                    .all(|name| !name.split('/').any(|part| matches!(part, "" | "..")))
            );
        }
        if let Ok(names) = registry_manifest(&mutations.mutated(manifest.as_bytes()), 2000) {
            read += usize::from(!names.is_empty());
            assert!(
                names
                    .iter()
                    .all(|name| !name.is_empty() && !name.split('/').any(|part| part == ".."))
            );
        }
        let bytes = mutations.mutated(&archive);
        if let Ok(files) = archive_files(&bytes, 2000) {
            read += usize::from(!files.is_empty());
            let len = bytes.len() as u64;
            assert!(files.iter().all(|(_, start, nbytes)| start + nbytes <= len));
        }
    }
    assert!(read > 500, "only {read} were read");
}

#[test]
fn mutated_answers_of_buckets_are_read_or_refused() {
    let seeds: [&[u8]; 5] = [
        b"<ListBucketResult><Name>b</Name><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated><Contents>\
          <Key>model/a.json</Key><LastModified>2026-06-01T00:00:00.000Z</LastModified><ETag>x</ETag><Size>1</Size>\
          </Contents></ListBucketResult>",
        b"<EnumerationResults><Prefix>p</Prefix><Blobs><Blob><Name>model/a</Name><Properties><Last-Modified>Mon, 01 Jun \
          2026 00:00:00 GMT</Last-Modified><Content-Length>1</Content-Length><Content-Type>x/y</Content-Type><Etag>x</Etag>\
          </Properties></Blob></Blobs><NextMarker /></EnumerationResults>",
        b"<InitiateMultipartUploadResult><UploadId>id</UploadId></InitiateMultipartUploadResult>",
        b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>",
        b"<Error><Code>NoSuchUpload</Code><Message>m</Message></Error>",
    ];
    let (mut mutations, mut done) = (Mutations(2), 0);
    for seed in seeds {
        for scheme in ["s3", "gs", "az"] {
            for operation in BUCKET_OPERATIONS {
                for _ in 0..ROUNDS / 100 {
                    let body = mutations.mutated(seed).into();
                    let status = [200, 200, 206, 400, 404, 412, 500][mutations.below(7)];
                    let tag = mutations.mutated(b"\"x\"");
                    let headers: [(&[u8], &[u8]); 3] = [
                        (b"etag", &tag),
                        (b"content-length", b"7"),
                        (b"last-modified", b"Mon, 01 Jun 2026 00:00:00 GMT"),
                    ];
                    let outcome = bucket_operation(scheme, operation, status, &headers, &body);
                    done += usize::from(outcome.is_ok());
                }
            }
        }
    }
    assert!(done > 200, "only {done} operations were made");
}

#[test]
fn mutated_entries_of_the_cache_of_headers_are_read_or_absent() {
    let text = |text: &[u8]| [&u32::try_from(text.len()).unwrap().to_le_bytes(), text].concat();
    let mut body = vec![1];
    body.extend(1000u64.to_le_bytes());
    for part in [&b"\"tag\""[..], b"", b"c0ffee"] {
        body.extend(text(part));
    }
    body.extend(2u32.to_le_bytes());
    for number in [0u64, 3, 10, 4] {
        body.extend(number.to_le_bytes());
    }
    body.extend(b"abcdefg");
    assert!(header_entry("https://h/a", &body) && header_entry("https://h/a", &[0]));
    let (mut mutations, mut read) = (Mutations(3), 0);
    for _ in 0..10 * ROUNDS {
        read += usize::from(header_entry("https://h/a", &mutations.mutated(&body)));
    }
    assert!(read > 100, "only {read} were read");
}
