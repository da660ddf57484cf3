//! Operations that the system refuses.

use super::*;

#[cfg(unix)]
#[tokio::test]
async fn new_folders_get_the_permissions_asked_for() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    folder.put("old/file", "");
    let before = fs::metadata(folder.path("old")).unwrap().permissions().mode();
    let yaml = folder.yaml("{ path: DIR/old/new/newer/out.log, folder_mode: '0750' }");
    write_all::<FileConfig>(&yaml, [batch(["one"])]).await.unwrap();
    let mode = |name: &str| fs::metadata(folder.path(name)).unwrap().permissions().mode();
    assert_eq!((mode("old/new") & 0o777, mode("old/new/newer") & 0o777), (0o750, 0o750));
    assert_eq!(mode("old"), before);
}

#[tokio::test]
async fn an_error_says_what_is_wrong_with_the_path() {
    let folder = Folder::new();
    fs::create_dir(folder.path("sub")).unwrap();
    folder.put("file", "");
    for (path, expected) in [
        ("DIR/sub", "is a folder. Give `path` the name of a file"),
        ("DIR/file/x", "file where a folder is needed"),
    ] {
        let mut sink = folder.sink(&format!("path: {path}"), false);
        let error = sink.open(None).await.unwrap_err();
        assert_eq!(error.kind(), thalweg_engine::ErrorKind::Permanent);
        assert!(error.full().contains(expected), "{}", error.full());
    }
}

#[cfg(unix)]
#[tokio::test]
async fn permissions_are_those_asked_for_and_missing_ones_are_an_error() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    write_all::<FileConfig>(&folder.yaml("{ path: DIR/out, mode: 0604 }"), []).await.unwrap();
    assert_eq!(fs::metadata(folder.path("out")).unwrap().permissions().mode() & 0o7777, 0o604);

    fs::create_dir(folder.path("locked")).unwrap();
    fs::set_permissions(folder.path("locked"), fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(folder.path("locked/probe"), "").is_ok() {
        eprintln!("skipped: permissions do not bind this user");
        return;
    }
    let mut sink = folder.sink("path: DIR/locked/out", false);
    let error = sink.open(None).await.unwrap_err().full();
    assert!(error.contains("permission was denied"), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_is_followed_and_stays() {
    let folder = Folder::new();
    folder.put("target", "old");
    std::os::unix::fs::symlink(folder.path("target"), folder.path("link")).unwrap();
    write_all::<FileConfig>(&folder.yaml("path: DIR/link"), [batch(["new"])]).await.unwrap();
    assert!(fs::symlink_metadata(folder.path("link")).unwrap().is_symlink());
    assert_eq!(folder.files(), files([("link", "new\n"), ("target", "new\n")]));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_device_is_an_error_that_says_so() {
    for atomic in [true, false] {
        let yaml = format!("{{ path: /dev/full, atomic: {atomic} }}");
        let error = write_all::<FileConfig>(&yaml, [batch(["a"])]).await.unwrap_err();
        assert_eq!(error.kind(), thalweg_engine::ErrorKind::Permanent);
        assert!(error.full().contains("no space is left"), "{}", error.full());
    }
    write_all::<FileConfig>("path: /dev/null", [batch(["a"])]).await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_removed_while_it_is_written_is_an_error_before_its_messages_are_acknowledged() {
    for (rest, is_buffered) in [("", false), (", compression: zstd", true), (", atomic: false", false)] {
        let folder = Folder::new();
        let mut sink = folder.sink(&format!("{{ path: DIR/sub/out{rest} }}"), false);
        sink.open(None).await.unwrap();
        write(&mut *sink, &batch(["1"])).await;
        sink.flush().await.unwrap();
        fs::remove_dir_all(folder.path("sub")).unwrap();
        let mut result = sink.write(&batch(["2"]), &mut Rejects::default()).await.map(drop);
        if is_buffered && result.is_ok() {
            result = sink.flush().await;
        }
        let error = result.unwrap_err();
        assert_eq!(error.kind(), thalweg_engine::ErrorKind::Permanent);
        assert!(error.full().contains("was removed while the sink was writing to it"), "{}", error.full());
    }
}

#[tokio::test]
async fn a_pipe_without_a_reader_is_waited_for_by_the_engine_which_may_stop() {
    let folder = Folder::new();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, folder.path("pipe"), mode).unwrap();
    let mut sink = folder.sink("path: DIR/pipe", false);
    let error = sink.open(None).await.unwrap_err();
    assert_eq!(error.kind(), thalweg_engine::ErrorKind::Temporary);
    assert!(error.full().contains("no program reads this pipe yet"), "{}", error.full());
    let path = folder.path("pipe");
    let reader = std::thread::spawn(move || fs::read_to_string(path).unwrap());
    while sink.open(None).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    write(&mut *sink, &batch(["1", "2"])).await;
    sink.finish().await.unwrap();
    drop(sink);
    assert_eq!(reader.join().unwrap(), "1\n2\n");
}

/// The test below runs this in a process that may only write small files.
#[cfg(target_os = "linux")]
#[tokio::test]
#[ignore = "needs a limited process"]
async fn in_a_process_that_may_write_4_kib() {
    let folder = Folder::new();
    let mut sink = folder.sink("path: 'DIR/{k}'", false);
    sink.open(None).await.unwrap();
    write(&mut *sink, &keyed(&[("a", "first"), ("b", "first")])).await;
    let state = sink.state();
    let large = "x".repeat(5_000);
    for _ in 0..2 {
        let mut rejects = Rejects::default();
        let rows = keyed(&[("../", ""), ("a", "second"), ("c", "second"), ("b", &large)]);
        let error = sink.write(&rows, &mut rejects).await.unwrap_err();
        assert!(error.full().contains("ulimit -f"), "{}", error.full());
        assert!(rejects.take().is_empty());
    }
    let kept = files([("a.part", "first\n"), ("b.part", "first\n"), ("c.part", "")]);
    assert_eq!(folder.files(), kept);
    assert_eq!(state.map(|s| s[0]["length"].clone()), sink.state().map(|s| s[0]["length"].clone()));
    write(&mut *sink, &keyed(&[("b", "third")])).await;
    sink.finish().await.unwrap();
    assert_eq!(folder.files(), files([("a", "first\n"), ("b", "first\nthird\n"), ("c", "")]));

    // During a rotation.
    let folder = Folder::new();
    let mut sink = folder.sink("{ path: DIR/o, rotate: { size: 6B } }", false);
    sink.open(None).await.unwrap();
    write(&mut *sink, &batch(["1"])).await;
    sink.write(&batch(["22", "333", "4444", &large]), &mut Rejects::default()).await.unwrap_err();
    assert_eq!(folder.files(), files([("o-00001.part", "1\n")]));
    write(&mut *sink, &batch(["22", "333"])).await;
    sink.finish().await.unwrap();
    assert_eq!(folder.files(), files([("o-00001", "1\n22\n"), ("o-00002", "333\n")]));
}

#[cfg(target_os = "linux")]
#[test]
fn a_batch_that_cannot_be_written_whole_is_taken_back() {
    let program = std::env::current_exe().unwrap();
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" --ignored --exact --nocapture \"$1\"";
    let name = "sinks::file::tests::failures::in_a_process_that_may_write_4_kib";
    let run = std::process::Command::new("sh").args(["-c", script]).arg(program).arg(name).output().unwrap();
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{output}{}", String::from_utf8_lossy(&run.stderr));
    assert!(output.contains("1 passed"), "{output}");
}

/// Creates a pipe, which no program reads.
fn pipe(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

#[tokio::test]
async fn something_else_in_the_place_of_an_unfinished_file_is_an_error_that_names_it() {
    for name in ["out.part", "out.continued.part"] {
        for (kind, make) in [
            ("a pipe", (|path: &Path| pipe(path)) as fn(&Path)),
            ("a folder", |path| fs::create_dir(path).unwrap()),
            ("a socket", |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap())),
            ("a symbolic link", |path| std::os::unix::fs::symlink("elsewhere", path).unwrap()),
        ] {
            for existing in ["replace", "append"] {
                let folder = Folder::new();
                make(&folder.path(name));
                let mut sink = folder.sink(&format!("{{ path: DIR/out, existing: {existing} }}"), false);
                let error = sink.open(None).await.unwrap_err().full();
                let expected = format!("/{name}` is {kind}, not a file: remove it, or choose another name.");
                assert!(error.ends_with(&expected), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_message_whose_name_is_a_pipe_is_rejected_and_the_others_are_written() {
    let folder = Folder::new();
    pipe(&folder.path("a"));
    pipe(&folder.path("b.part"));
    let mut sink = folder.sink("{ path: 'DIR/{k}' }", false);
    sink.open(None).await.unwrap();
    let rejected = write(&mut *sink, &keyed(&[("a", "1"), ("b", "2"), ("c", "3")])).await;
    assert_eq!(rejected.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [0, 1]);
    assert!(rejected[0].1.contains("/a` is a pipe, not a file"), "{rejected:?}");
    sink.finish().await.unwrap();
    assert_eq!(fs::read_to_string(folder.path("c")).unwrap(), "3\n");
}

#[tokio::test]
async fn links_below_the_constant_folder_are_not_followed() {
    for atomic in [true, false] {
        let folder = Folder::new();
        fs::create_dir_all(folder.path("out")).unwrap();
        fs::create_dir_all(folder.path("victim")).unwrap();
        std::os::unix::fs::symlink("../victim", folder.path("out/ln")).unwrap();
        std::os::unix::fs::symlink("../victim/new", folder.path("out/dang")).unwrap();
        let mut sink = folder.sink(&format!("{{ path: 'DIR/out/{{k}}', atomic: {atomic} }}"), false);
        sink.open(None).await.unwrap();
        let rejected = write(&mut *sink, &keyed(&[("ln/x", "1"), ("dang", "2"), ("a/b", "3")])).await;
        assert!(rejected[0].1.contains("/out/ln` is a symbolic link, not a file"), "{rejected:?}");
        assert!(rejected[1].1.contains("/out/dang` is a symbolic link, not a file"), "{rejected:?}");
        sink.finish().await.unwrap();
        assert!(fs::read_dir(folder.path("victim")).unwrap().next().is_none());
        assert_eq!(fs::read_to_string(folder.path("out/a/b")).unwrap(), "3\n");
        // The constant folder may be a link itself.
        std::os::unix::fs::symlink("victim", folder.path("in")).unwrap();
        let mut sink = folder.sink("{ path: 'DIR/in/{k}' }", false);
        sink.open(None).await.unwrap();
        assert!(write(&mut *sink, &keyed(&[("a", "1")])).await.is_empty());
        sink.finish().await.unwrap();
        assert_eq!(fs::read_to_string(folder.path("victim/a")).unwrap(), "1\n");
    }
}
