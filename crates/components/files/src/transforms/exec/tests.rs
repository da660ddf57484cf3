use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::*;
use thalweg_engine::testing::{apply_to_file, context, file_at, file_of, messages, options};
use thalweg_record::Problem;

async fn run(yaml: &str, file: &mut File) -> Result<(), Problem> {
    apply_to_file::<Exec>(yaml, file).await.map(|disposition| assert_eq!(disposition, Disposition::Continue))
}

/// A shell that runs a script with these arguments; `more` holds further options.
fn shell(script: &str, args: &str, more: &str) -> String {
    format!("command: sh\nargs: [-c, '{script}', sh, {args}]\n{more}")
}

#[tokio::test]
async fn arguments_arrive_byte_by_byte_whatever_the_name_is() {
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().join("seen");
    for name in
        [b"plain".as_slice(), b"a b  c", b"-rf", b"'\"`$(touch x)`;", b"line\nfeed", b"\xff\xfe", b"*"]
    {
        let path = folder.path().join(OsStr::from_bytes(name));
        std::fs::write(&path, "text").unwrap();
        let yaml = shell(
            r#"printf "%s\0" "$@" > "$0.tmp" && mv "$0.tmp" "$0""#,
            r#""{name}", "{path}", "x{{{stem}}}""#,
            "",
        );
        let yaml = yaml.replace("sh, \"{name}", &format!("\"{}\", \"{{name}}", seen.display()));
        let mut file = file_at(&path);
        assert_eq!(run(&yaml, &mut file).await, Ok(()));
        let mut expected = [name, path.as_os_str().as_bytes()].join(&0);
        expected.extend(b"\0x{");
        expected.extend(path.file_stem().unwrap().as_bytes());
        expected.extend(b"}\0");
        assert_eq!(std::fs::read(&seen).unwrap(), expected);
        assert_eq!(file.path(), Some(&*path));
    }
}

#[tokio::test]
async fn a_file_that_the_command_changes_is_known_in_its_new_state() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.txt");
    for more in ["output: '{path}'", ""] {
        std::fs::write(&path, "text").unwrap();
        let mut file = file_at(&path);
        assert_eq!(run(&shell("echo more >> \"$1\"", "'{path}'", more), &mut file).await, Ok(()));
        let state = FileState::of(&std::fs::metadata(&path).unwrap());
        assert_eq!(file.origin().state(), Some(state));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_on_a_server_gets_a_path() {
    let mut file = crate::ahead::testing::sliced("a.txt", b"text from a server", 4, 2);
    let yaml = shell("echo \" and more\" >> \"$1\"", "'{path}'", "");
    assert_eq!(run(&yaml, &mut file).await, Ok(()));
    let path = file.path().unwrap();
    assert_eq!(path.extension().unwrap(), "txt");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "text from a server and more\n");
    assert_eq!(file.name(), "a.txt");
}

#[tokio::test]
async fn a_result_becomes_the_content_and_stays_or_goes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.txt");
    std::fs::write(&path, "text").unwrap();
    for (cleanup, stays) in [("keep", true), ("remove", false)] {
        let output = format!(
            "output: '{}/{{stem}} 2.out'\noutput_cleanup: {cleanup}\nenv: {{ WORD: ' a  word' }}",
            folder.path().display()
        );
        let yaml = shell(
            r#"cat "$1" > "$2"; printf %s "$WORD" >> "$2""#,
            &format!("'{{path}}', '{}/{{stem}} 2.out'", folder.path().display()),
            &output,
        );
        let mut file = file_at(&path);
        assert_eq!(run(&yaml, &mut file).await, Ok(()));
        let made = folder.path().join("in 2.out");
        assert_eq!(std::fs::read(&made).unwrap(), b"text a  word");
        assert_eq!((file.path(), file.size(), file.name()), (Some(&*made), 12, OsStr::new("in 2.out")));
        drop(file);
        assert_eq!((made.exists(), path.exists()), (stays, true));
    }
}

#[tokio::test]
async fn a_missing_result_and_half_a_one_are_told_from_a_good_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    std::fs::write(&path, "text").unwrap();
    let problem = run("{ command: 'true', output: '{path}.out' }", &mut file_at(&path)).await.unwrap_err();
    assert_eq!(problem.code, Some(UNREADABLE));
    assert!(problem.reason.starts_with("`true` succeeded, but did not create `"), "{}", problem.reason);
    let is_folder = format!("{{ command: 'true', output: '{}' }}", folder.path().display());
    assert!(run(&is_folder, &mut file_at(&path)).await.unwrap_err().reason.ends_with("is not a file"));
    let more = "output: '{path}.out'\noutput_cleanup: remove";
    let half = shell(r#"echo half > "$1"; exit 7"#, "'{path}.out'", more);
    let mut file = file_at(&path);
    assert_eq!(run(&half, &mut file).await.unwrap_err().reason, "`sh` ended with exit code 7");
    assert!(!folder.path().join("x.out").exists());
    assert_eq!(file.path(), Some(&*path));
    // The original file is never removed.
    let same = shell("exit 1", "", "output: '{path}'\noutput_cleanup: remove");
    assert_eq!(run(&same, &mut file).await.unwrap_err().reason, "`sh` ended with exit code 1");
    assert!(path.exists());
}

#[tokio::test]
async fn what_is_in_memory_gets_a_path_where_that_is_used() {
    let mut file = file_of("x.txt", b"text");
    assert_eq!(run("{ command: 'true', args: ['{name}'] }", &mut file).await, Ok(()));
    assert_eq!(file.path(), None);
    let change = shell(r#"case "$1" in *.txt) printf changed > "$1" ;; *) exit 1 ;; esac"#, "'{path}'", "");
    assert_eq!(run(&change, &mut file).await, Ok(()));
    let path = file.path().unwrap().to_owned();
    assert_eq!((file.size(), std::fs::read(&path).unwrap()), (7, b"changed".to_vec()));
    // The file was changed in place and is also the result: it is still the same temporary file.
    let same = shell(r#"printf more >> "$1""#, "'{path}'", "output: '{path}'");
    assert_eq!(run(&same, &mut file).await, Ok(()));
    assert_eq!(std::fs::read(&path).unwrap(), b"changedmore");
    drop(file);
    assert!(!path.exists());
}

#[tokio::test]
async fn what_went_wrong_has_its_code() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    std::fs::write(&path, "text").unwrap();
    let mut file = file_at(&path);
    let code = async |yaml: &str, file: &mut File| run(yaml, file).await.unwrap_err().code;
    assert_eq!(code("{ command: thalweg-no-such-program }", &mut file).await, Some(FAILED));
    assert_eq!(code("{ command: 'false' }", &mut file).await, Some(FAILED));
    assert_eq!(code("{ command: 'true', args: ['{hash}'] }", &mut file).await, Some(NOT_RENDERED));
    assert_eq!(code("{ command: '{folder}' }", &mut file).await, Some(NOT_RENDERED));
    let in_memory = &mut file_of("x", b"");
    assert_eq!(code("{ command: 'true', args: ['{original_path}'] }", in_memory).await, Some(NOT_RENDERED));
    let slow = run("{ command: sleep, args: ['1000'], timeout: 200ms }", &mut file).await.unwrap_err();
    assert_eq!(slow.reason, "`sleep` took longer than 200ms and was killed");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(code("{ command: 'true' }", &mut file).await, Some("FILE_CAN_NOT_BE_OPENED"));
}

#[tokio::test]
async fn many_at_once_leave_no_process_behind() {
    let context = context();
    let config = options::<Exec>("{ command: sh, args: [-c, 'echo $$ > \"$1\"', sh, '{path}'] }");
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let mut transform = config.build(&context).unwrap();
        running.spawn(async move {
            let mut file = file_of("x", b"text");
            transform.apply(&mut file).await.unwrap();
            std::fs::read_to_string(file.path().unwrap()).unwrap()
        });
    }
    for id in running.join_all().await {
        assert!(!Path::new("/proc").join(id.trim()).exists());
    }
}

#[test]
fn options_that_make_no_sense_are_mistakes() {
    let count = |yaml: &str| messages(options::<Exec>(yaml).check());
    assert_eq!(
        count("{ command: '', output: '', timeout: 0, env: { 'a=b': x } }"),
        [
            "The command has no name.",
            "The path of the result is empty.",
            "`timeout` cannot be 0.",
            "`a=b` is not a valid name of an environment variable.",
        ]
    );
    assert_eq!(count("{ command: x, output_cleanup: remove }"), ["There is no `output` to remove."]);
    assert_eq!(count("{ command: x, output: y, output_cleanup: remove, one_at_a_time: true }"), [""; 0]);
    assert_eq!(options::<Exec>("{ command: x, one_at_a_time: true }").cost(), Cost::Alone);
    assert_eq!(options::<Exec>("{ command: x }").cost(), Cost::Waits);
}
