use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::*;
use thalweg_engine::testing::{apply_to_file, context, file_at, file_of, options};

/// Returns a picture of one pixel with a text that names its author.
fn telling() -> Vec<u8> {
    let chunk = |name: &[u8; 4], payload: &[u8]| {
        let mut chunk = u32::try_from(payload.len()).unwrap().to_be_bytes().to_vec();
        chunk.extend(name);
        chunk.extend(payload);
        // The checksums are not checked here.
        chunk.extend([0; 4]);
        chunk
    };
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    png.extend(chunk(b"IHDR", &[0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0]));
    png.extend(chunk(b"tEXt", b"Author\0somebody"));
    png.extend(chunk(b"IDAT", &[0x78, 0x9c, 0x63, 0x60, 0, 0, 0, 2, 0, 1]));
    png.extend(chunk(b"IEND", b""));
    png
}

fn tells(bytes: &[u8]) -> bool {
    bytes.windows(8).any(|part| part == b"somebody")
}

fn names() -> [&'static OsStr; 5] {
    [b"plain.png".as_slice(), b"-all= '\" $(x).png", b"line\nfeed.png", b"\xff\xfe %d.png", b"@x"]
        .map(OsStr::from_bytes)
}

/// Writes a script called `exiftool` that copies its input and records its arguments.
fn false_exiftool(folder: &Path, script: &str) -> PathBuf {
    let path = folder.join("exiftool");
    // Another process writes the script. If this process had it open for writing, a child forked meanwhile
    // could not run it.
    let written = std::process::Command::new("sh")
        .args(["-c", r#"printf '%s\n' '#!/bin/sh' "$2" > "$1" && chmod +x "$1""#, "sh"])
        .args([path.as_os_str(), OsStr::new(script)])
        .status();
    assert!(written.unwrap().success());
    path
}

async fn apply_with(
    exiftool: Option<PathBuf>,
    yaml: &str,
    file: &mut File,
) -> Result<Disposition, thalweg_record::Problem> {
    let mut transform = Stripping { options: options(yaml), exiftool, context: context() };
    match transform.apply(file).await {
        Ok(disposition) => Ok(disposition),
        Err(FileError::Rejected(problem)) => Err(problem),
        Err(FileError::Failed(error)) => panic!("{error}"),
    }
}

#[tokio::test]
async fn the_file_that_goes_on_is_another_and_goes_with_the_run() {
    let folder = tempfile::tempdir().unwrap();
    for name in names() {
        let path = folder.path().join(name);
        fs::write(&path, telling()).unwrap();
        let mut file = file_at(&path);
        assert_eq!(apply_to_file::<StripMetadata>("{}", &mut file).await, Ok(Disposition::Continue));
        let made = file.path().unwrap().to_owned();
        let stripped = fs::read(&made).unwrap();
        assert!(made != path && !tells(&stripped) && stripped.len() as u64 == file.size());
        assert!(tells(&fs::read(&path).unwrap()));
        drop(file);
        assert!(!made.exists());
    }
}

#[tokio::test]
async fn in_place_it_is_the_file_itself_with_its_permissions() {
    let folder = tempfile::tempdir().unwrap();
    for name in names() {
        let path = folder.path().join(name);
        fs::write(&path, telling()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let mut file = file_at(&path);
        for _ in 0..2 {
            assert_eq!(
                apply_to_file::<StripMetadata>("{ in_place: true }", &mut file).await,
                Ok(Disposition::Continue)
            );
            assert_eq!(file.path(), Some(&*path));
            assert!(!tells(&fs::read(&path).unwrap()));
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
        }
    }
    let link = folder.path().join("link.png");
    fs::write(folder.path().join("plain.png"), telling()).unwrap();
    std::os::unix::fs::symlink("plain.png", &link).unwrap();
    let stripped = apply_to_file::<StripMetadata>("{ in_place: true }", &mut file_at(&link)).await;
    assert_eq!(stripped, Ok(Disposition::Continue));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(!tells(&fs::read(folder.path().join("plain.png")).unwrap()));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), names().len() + 1);
}

#[tokio::test]
async fn in_place_the_run_knows_the_new_file_and_leaves_one_that_others_have_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.png");
    let exiftool = false_exiftool(folder.path(), r#"head -c 20 "$4" > "$3""#);
    for (with, exiftool) in [("native", None), ("exiftool", Some(exiftool))] {
        let yaml = format!("{{ with: {with}, in_place: true }}");
        fs::write(&path, telling()).unwrap();
        let mut file = file_at(&path);
        assert_eq!(apply_with(exiftool.clone(), &yaml, &mut file).await, Ok(Disposition::Continue));
        let state = FileState::of(&fs::metadata(&path).unwrap());
        assert_eq!(file.origin().state(), Some(state), "{with}");
        // Others replace it by the first version, just before it is read.
        fs::write(&path, telling()).unwrap();
        assert_eq!(apply_with(exiftool, &yaml, &mut file).await, Ok(Disposition::Continue));
        assert!(tells(&fs::read(&path).unwrap()), "{with}");
        assert!(matches!(file.content(), Content::Temporary(_)), "{with}");
        assert!(!tells(&fs::read(file.path().unwrap()).unwrap()), "{with}");
    }
}

#[tokio::test]
async fn one_in_memory_becomes_a_temporary_file() {
    let mut file = file_of("x.png", &telling());
    assert_eq!(
        apply_to_file::<StripMetadata>("{ in_place: true }", &mut file).await,
        Ok(Disposition::Continue)
    );
    assert!(matches!(file.content(), Content::Temporary(_)));
    assert_eq!(file.mime().map(|mime| &**mime), Some("image/png"));
}

#[tokio::test]
async fn exiftool_gets_whole_paths_byte_by_byte() {
    let folder = tempfile::tempdir().unwrap();
    let tool = tempfile::tempdir().unwrap();
    let script =
        r#"[ "$1" = -all:all= ] && [ "$2" = -o ] && [ ! -e "$3" ] && sed s/somebody/nobody/ < "$4" > "$3""#;
    let exiftool = false_exiftool(tool.path(), script);
    for name in names() {
        let path = folder.path().join(name);
        for (yaml, stays) in [("{ with: exiftool }", true), ("{ in_place: true }", false)] {
            fs::write(&path, "somebody wrote this").unwrap();
            let mut file = file_at(&path);
            assert_eq!(apply_with(Some(exiftool.clone()), yaml, &mut file).await, Ok(Disposition::Continue));
            let now = file.path().unwrap().to_owned();
            assert_eq!(fs::read(&now).unwrap(), b"nobody wrote this");
            assert_eq!(fs::read(&path).unwrap() == b"somebody wrote this", stays);
            drop(file);
            assert_eq!(now.exists(), !stays);
        }
    }
    let mut in_memory = file_of("x", b"somebody");
    assert_eq!(apply_with(Some(exiftool), "{}", &mut in_memory).await, Ok(Disposition::Continue));
    assert_eq!(fs::read(in_memory.path().unwrap()).unwrap(), b"nobody");
}

#[tokio::test]
async fn why_it_could_not_be_done_is_said() {
    let tool = tempfile::tempdir().unwrap();
    let reason = async |exiftool: Option<PathBuf>, yaml: &str, content: &[u8]| {
        let problem = apply_with(exiftool, yaml, &mut file_of("x", content)).await.unwrap_err();
        assert_eq!(problem.code, Some(FAILED));
        problem.reason
    };
    assert_eq!(
        reason(None, "{}", b"text").await,
        "removing metadata from `text/plain; charset=utf-8` needs exiftool, which is not in `PATH`; install exiftool"
    );
    assert_eq!(
        reason(None, "{ with: exiftool }", &telling()).await,
        "exiftool is not in any folder of `PATH`; install it, or use `with: auto`"
    );
    assert_eq!(
        reason(None, "{ with: native }", b"text").await,
        "thalweg itself removes metadata only from JPEG, PNG and WebP, but the file is `text/plain; charset=utf-8`; use `with: auto` and install exiftool"
    );
    assert_eq!(
        reason(None, "{}", &telling()[..60]).await,
        "the PNG is damaged: it ends before its pixels, or the lengths of its parts are wrong"
    );
    let failing = false_exiftool(tool.path(), "echo 'Error: not a picture' >&2; exit 1");
    let expected = format!("`{}` ended with exit code 1: Error: not a picture", failing.display());
    assert_eq!(reason(Some(failing), "{}", b"text").await, expected);
    let idle = false_exiftool(tool.path(), "exit 0");
    assert_eq!(
        reason(Some(idle), "{}", b"text").await,
        "exiftool succeeded, but wrote no file: No such file or directory (os error 2)"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, telling()).unwrap();
    let mut gone = file_at(&path);
    fs::remove_file(&path).unwrap();
    assert_eq!(
        apply_to_file::<StripMetadata>("{}", &mut gone).await.unwrap_err().code,
        Some("FILE_CAN_NOT_BE_OPENED")
    );
}
