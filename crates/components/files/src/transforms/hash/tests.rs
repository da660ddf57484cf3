use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::*;
use thalweg_engine::testing::{apply_to_file, file_at, file_of, messages, options};

const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

#[tokio::test]
async fn each_algorithm_gives_what_its_authors_say() {
    for (algorithm, hash) in [
        ("sha256", ABC),
        ("sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"),
        ("md5", "900150983cd24fb0d6963f7d28e17f72"),
        ("blake3", "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"),
        ("xxh3", "78af5f94892f3950"),
        ("crc32c", "364b3fb7"),
    ] {
        let mut file = file_of("x", b"abc");
        let yaml = format!("{{ algorithm: {algorithm} }}");
        assert_eq!(apply_to_file::<Hash>(&yaml, &mut file).await, Ok(Disposition::Continue));
        assert_eq!(file.note(HASH), Some(hash), "{algorithm}");
    }
}

#[tokio::test]
async fn a_file_that_is_not_what_its_sidecar_says_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a b.txt");
    fs::write(&path, "abc").unwrap();
    let verify = r#"{ verify: "{original_path}.sha256" }"#;
    let sidecar = folder.path().join("a b.txt.sha256");
    let mut reasons = Vec::new();
    let lower = format!("{ABC}  a b.txt\n");
    let written = [
        lower.clone(),
        ABC.to_uppercase(),
        format!("{ABC} *some/where/a b.txt\r\n"),
        format!("{}  other.txt\n{lower}", "0".repeat(64)),
        format!("SHA256 (a b.txt) = {ABC}\n"),
        lower.replace("ba78", "ba79"),
        lower.replace("a b.txt", "xa b.txt"),
        "not a hash\n".to_owned(),
    ];
    for text in written {
        fs::write(&sidecar, text).unwrap();
        let applied = apply_to_file::<Hash>(verify, &mut file_at(&path)).await;
        reasons.push(applied.err().map(|problem| problem.reason));
    }
    fs::remove_file(&sidecar).unwrap();
    reasons
        .push(apply_to_file::<Hash>(verify, &mut file_at(&path)).await.err().map(|problem| problem.reason));
    assert!(reasons[..5].iter().all(Option::is_none), "{reasons:?}");
    let says = |at: usize, words: &str| assert!(reasons[at].as_ref().unwrap().contains(words), "{reasons:?}");
    says(5, "says ba79");
    says(6, "has no SHA-256 of this file");
    says(7, "has no SHA-256 of this file");
    says(8, "does not exist");
}

#[tokio::test]
async fn sidecars_are_what_is_read_again_whatever_the_name_is() {
    let folder = tempfile::tempdir().unwrap();
    for name in
        [b"plain".as_slice(), b"-n '\" x", b"ends with a space ", b"line\nfeed\\", b"\xff\xfe", b"(a) = b"]
    {
        let path = folder.path().join(OsStr::from_bytes(name));
        fs::write(&path, "abc").unwrap();
        let sums = folder.path().join("sums/below");
        let write = format!("{{ sidecars: {} }}", sums.display());
        assert_eq!(apply_to_file::<Hash>(&write, &mut file_at(&path)).await, Ok(Disposition::Continue));
        // A second write replaces it.
        assert_eq!(apply_to_file::<Hash>(&write, &mut file_at(&path)).await, Ok(Disposition::Continue));
        let verify = format!(r#"{{ verify: "{}/{{original_name}}.sha256" }}"#, sums.display());
        assert_eq!(
            apply_to_file::<Hash>(&verify, &mut file_at(&path)).await,
            Ok(Disposition::Continue),
            "{name:?}"
        );
    }
    let mut leads_out = file_of("x", b"abc");
    leads_out.set_name("../x");
    let yaml = format!("{{ sidecars: {} }}", folder.path().display());
    let problem = apply_to_file::<Hash>(&yaml, &mut leads_out).await.unwrap_err();
    let expected =
        format!("`../x.sha256` is not a valid name for a file below `{}`", folder.path().display());
    assert_eq!(problem.reason, expected);
}

#[tokio::test]
async fn a_file_that_has_gone_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, "abc").unwrap();
    let mut file = file_at(&path);
    fs::remove_file(&path).unwrap();
    let problem = apply_to_file::<Hash>("{}", &mut file).await.unwrap_err();
    assert_eq!(problem.code, Some("FILE_CAN_NOT_BE_OPENED"));
    assert_eq!(
        messages(options::<Hash>(r#"{ verify: "", sidecars: "" }"#).check()),
        ["The file with the hash has no name.", "The folder has no name."]
    );
}
