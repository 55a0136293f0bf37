use super::*;

#[test]
fn places_have_a_repository_a_reference_and_a_file() {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let parsed = |rest: &str| {
        let path = RegistryPath::parse(rest).unwrap();
        let shown = path.shown();
        (
            path.manifest_url(&path.reference).to_string(),
            path.file,
            shown,
        )
    };
    for (rest, manifest, file, shown) in [
        (
            "r.example/a/b:v1",
            "https://r.example/v2/a/b/manifests/v1",
            "",
            "oci://r.example/a/b:v1",
        ),
        (
            "localhost:5000/a",
            "http://localhost:5000/v2/a/manifests/latest",
            "",
            "oci://localhost:5000/a:latest",
        ),
        (
            "[::1]:5000/a:_x/",
            "http://[::1]:5000/v2/a/manifests/_x",
            "",
            "oci://[::1]:5000/a:_x",
        ),
        (
            "docker.io/m:v/sub/a.json",
            "https://registry-1.docker.io/v2/library/m/manifests/v",
            "sub/a.json",
            "oci://docker.io/m:v/sub/a.json",
        ),
    ] {
        assert_eq!(
            parsed(rest),
            (manifest.to_owned(), file.to_owned(), shown.to_owned())
        );
    }
    let (manifest, file, _) = parsed(&format!("r.example/a:v1@{digest}/a.gguf"));
    assert!(manifest.ends_with(&format!("/a/manifests/{digest}")) && file == "a.gguf");
    for wrong in [
        "",
        "r.example",
        "r.example/",
        "/a",
        "r.example/a//b",
        "r.example/../b",
        "r.example/a:",
        "r.example/a:v 1",
        "r.example/a@sha256:12",
        "r.example/a@md5:12",
        "r.example/a:v/../b",
        "user@r.example/a",
        "r.example?/a",
    ] {
        assert!(RegistryPath::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn digests_are_compared() {
    let digest = BlobDigest::of(b"abc");
    assert!(digest.to_string().starts_with("sha256:ba7816bf") && digest.check(b"abc").is_ok());
    let long = BlobDigest::parse(&format!("sha512:{}", hex_of(&Sha512::digest(b"abc")))).unwrap();
    assert!(long.check(b"abc").is_ok() && long.check(b"abd").is_err());
    for wrong in [
        "sha256:",
        "sha1:00",
        "abc",
        &digest.to_string().to_uppercase(),
    ] {
        assert_eq!(BlobDigest::parse(wrong), None, "{wrong}");
    }
}

/// A header of a member, with its checksum.
fn header(name: &str, size: &[u8; 12], kind: u8) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[124..136].copy_from_slice(size);
    header[148..156].fill(b' ');
    header[156] = kind;
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

fn listed(archive: &[u8], room: u64) -> Result<Vec<(String, TarMember)>> {
    members(archive.len() as u64, room, &mut |at, buf| {
        let at = usize::try_from(at).unwrap();
        buf.copy_from_slice(&archive[at..at + buf.len()]);
        Ok(())
    })
}

#[test]
fn members_are_listed_and_wrong_headers_refused() {
    let mut archive = header("sub/", b"00000000000\0", b'5');
    // GNU's long name, and a size in base 256
    archive.extend(header("x", b"00000000006\0", b'L'));
    archive.extend(b"a/b/c\0");
    archive.resize(1536, 0);
    archive.extend(header("short", b"\x80\0\0\0\0\0\0\0\0\0\0\x03", b'0'));
    archive.extend(b"abc");
    archive.resize(2560, 0);
    archive.extend(header("link", b"00000000000\0", b'2'));
    let expected = vec![(
        "a/b/c".to_owned(),
        TarMember {
            start: 2048,
            len: 3,
        },
    )];
    assert_eq!(listed(&archive, 10_000).unwrap(), expected);
    assert!(
        listed(&archive, 10)
            .unwrap_err()
            .to_string()
            .contains("memory")
    );
    for (size, kind) in [
        (b"77777777777\0", b'0'),
        (b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", b'0'),
        (b"\x80\x01\0\0\0\0\0\0\0\0\0\0", b'0'),
        (b"0000000000x\0", b'0'),
        (b"            ", b'0'),
        (b"00000000000\0", b'S'),
        (b"00000000400\0", b'x'),
    ] {
        let mut wrong = header("a", size, kind);
        wrong.resize(1024, b'1');
        assert!(listed(&wrong, 10_000).is_err(), "{size:?} {kind}");
    }
    archive[0] ^= 1;
    assert!(
        listed(&archive, 10_000)
            .unwrap_err()
            .to_string()
            .contains("checksum")
    );
}

#[test]
fn manifests_are_within_their_room_and_name_layers() {
    let digest = BlobDigest::of(b"");
    let text = format!(
        r#"{{"x":[[]],"layers":[{{"mediaType":"a","digest":"{digest}","size":3,"annotations":null}},
            {{"mediaType":"b","digest":"{digest}","size":0,"platform":null,
              "annotations":{{"org.opencontainers.image.title":"t","org.cnai.model.filepath":"p"}}}}]}}"#
    );
    let RegistryManifest::Layers(layers) = parse_manifest(text.as_bytes(), 10_000).unwrap() else {
        panic!("layers")
    };
    let paths: Vec<_> = layers.iter().map(|layer| layer.path.as_deref()).collect();
    assert_eq!(paths, [None, Some("p")]);
    assert!(
        parse_manifest(text.as_bytes(), 100)
            .unwrap_err()
            .to_string()
            .contains("memory")
    );
    for end in 0..text.len() {
        assert!(parse_manifest(&text.as_bytes()[..end], 10_000).is_err());
    }
    for wrong in [
        "{}".to_owned(),
        "[".repeat(1 << 20),
        r#"{"layers":[{"digest":"sha256:1","size":1}]}"#.to_owned(),
        format!(r#"{{"layers":[{{"digest":"{digest}"}}]}}"#),
        format!(r#"{{"layers":[{{"digest":"{digest}","size":-1}}]}}"#),
        r#"{"manifests":[]}"#.to_owned(),
        r#"{"manifests":[],"layers":[]}"#.to_owned(),
    ] {
        assert!(
            parse_manifest(wrong.as_bytes(), 10_000).is_err(),
            "{:.60}",
            wrong
        );
    }
}
