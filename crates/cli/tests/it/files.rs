//! Whole files, from folders into folders.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::common::{House, command, said};

const COPY: &str = "
sources: { files: { files: { path: in } } }
pipelines:
  main:
    from: files
    transforms:
      - check_size: { max_bytes: 1KiB }
      - check_type: { deny: [image/png] }
    to: kept
  others: { from: main.errors, to: refused }
sinks:
  kept: { directory: { path: out } }
  refused: { directory: { path: refused } }
";

/// Returns the files below a folder with their texts.
fn files(folder: &Path) -> Vec<(String, String)> {
    fn walk(root: &Path, folder: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(root, &path, found);
            } else {
                let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                found.push((name, String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()));
            }
        }
    }
    let mut found = Vec::new();
    walk(folder, folder, &mut found);
    found.sort();
    found
}

fn names(folder: &Path) -> Vec<String> {
    files(folder).into_iter().map(|(name, _)| name).collect()
}

fn house_with(configuration: &str) -> House {
    let house = House::with(&[("files.yaml", configuration)]);
    fs::create_dir(house.path().join("in")).unwrap();
    house
}

#[test]
fn a_later_run_does_not_replace_what_was_written_of_files_that_are_removed() {
    for copy in ["write: { path: out, name: same }", "upload: { url: out/, name: same }"] {
        let house = house_with(&format!(
            "sources: {{ files: {{ files: {{ path: in }} }} }}
pipelines: {{ main: {{ from: files, transforms: [{{ {copy} }}], to: gone }} }}
sinks: {{ gone: remove }}"
        ));
        for name in ["first", "second"] {
            house.write(&format!("in/{name}"), name.as_bytes());
            house.run_well(&["run", "files.yaml"]);
        }
        let expected = [("same", "first"), ("same-2", "second")];
        assert_eq!(files(&house.path().join("out")), expected.map(|(a, b)| (a.into(), b.into())), "{copy}");
        assert_eq!(names(&house.path().join("in")), [""; 0]);
    }
}

#[test]
fn good_files_arrive_and_bad_ones_leave_by_errors_with_their_reason() {
    let house = house_with(COPY);
    fs::create_dir(house.path().join("in/below")).unwrap();
    for (name, content) in [
        ("in/a.txt", b"text".as_slice()),
        ("in/below/b c'd\"\n.txt", b"text"),
        ("in/big", &[b'x'; 2000]),
        ("in/image.txt", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
    ] {
        house.write(name, content);
    }
    fs::write(house.path().join("in").join(OsStr::from_bytes(b"\xff\xfe")), "text").unwrap();
    house.run_well(&["run", "files.yaml"]);
    assert_eq!(names(&house.path().join("out")), ["a.txt", "below/b c'd\"\n.txt", "\u{fffd}\u{fffd}"]);
    assert_eq!(names(&house.path().join("refused")), ["big", "image.txt"]);

    // Without a pipeline for them, rejected files are reported and kept as dead letters.
    let lone = COPY.replace("  others: { from: main.errors, to: refused }\n", "");
    house.write("lone.yaml", lone.replace("  refused: { directory: { path: refused } }\n", "").as_bytes());
    let output = house.run(&["run", "lone.yaml", "--strict"]);
    assert_eq!(output.code, Some(1), "{}", output.err);
    let listed = house.run_well(&["errors", "list", "lone.yaml"]).out;
    assert!(listed.contains("which is greater than 1KiB"), "{listed}");
    assert!(listed.contains("`image/png` is not allowed"), "{listed}");
}

#[test]
fn components_that_do_not_fit_are_shown_at_their_position() {
    for (from, to, message) in [
        ("{ files: { path: in } }", "{ file: { path: out } }", "takes messages, but here are files"),
        ("{ file: { path: in } }", "{ directory: { path: out } }", "takes files, but here are messages"),
    ] {
        let house = House::with(&[(
            "wrong.yaml",
            &format!(
                "sources: {{ s: {from} }}\npipelines: {{ main: {{ from: s, to: t }} }}\nsinks: {{ t: {to} }}\n"
            ),
        )]);
        let wrong = house.run(&["check", "wrong.yaml"]);
        assert_eq!(wrong.code, Some(2));
        assert!(wrong.err.contains(message), "{}", wrong.err);
    }
    let house = house_with(&COPY.replace("- check_size: { max_bytes: 1KiB }", "- filter: \"size > 1\""));
    let wrong = house.run(&["check", "files.yaml"]);
    assert!(wrong.err.contains("`filter` takes messages, but here are files"), "{}", wrong.err);
}

#[test]
fn a_hundred_thousand_files_pass_with_256_descriptors() {
    let house = house_with(COPY);
    for folder in 0..100 {
        let folder = house.path().join(format!("in/{folder}"));
        fs::create_dir(&folder).unwrap();
        (0..1000).for_each(|number| drop(fs::File::create(folder.join(number.to_string())).unwrap()));
    }
    let program = env!("CARGO_BIN_EXE_thalweg");
    let script = format!("ulimit -n 256 && exec '{program}' run files.yaml --quiet --memory 32MiB");
    let mut shell = std::process::Command::new("sh");
    let ended = said(shell.arg("-c").arg(script).current_dir(house.path()).output().unwrap());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let arrived: usize = (0..100)
        .map(|folder| fs::read_dir(house.path().join(format!("out/{folder}"))).unwrap().count())
        .sum();
    assert_eq!(arrived, 100_000);
}

#[test]
fn kill_9_in_the_middle_and_a_restart_lose_no_file_and_leave_none_in_part() {
    let house = house_with(
        "
sources: { files: { files: { path: in } } }
pipelines:
  main: { from: files, transforms: [hash], to: kept }
sinks:
  kept: { directory: { path: out, existing: error } }
",
    );
    let content = |number: usize| number.to_string().repeat(40_000);
    (0..600).for_each(|number| house.write(&format!("in/{number:03}"), content(number).as_bytes()));
    let mut kills = 0;
    loop {
        let mut child = command(house.path(), &["run", "files.yaml", "--state", "state", "--quiet"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if kills < 12 {
            std::thread::sleep(Duration::from_millis(10 + 7 * kills));
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
            continue;
        }
        let ended = said(child.wait_with_output().unwrap());
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        break;
    }
    let arrived = files(&house.path().join("out"));
    assert_eq!(arrived.len(), 600);
    for (number, (name, text)) in arrived.iter().enumerate() {
        assert_eq!((name.as_str(), text.len()), (format!("{number:03}").as_str(), content(number).len()));
    }
    // Files delivered before are recognised by their content, and not rejected.
    assert!(!house.path().join("state/dead_letters").exists());
    // The interrupted runs' files are known, though they were created just before the first run.
    let again = house.run_well(&["run", "files.yaml", "--state", "state"]);
    assert!(again.err.contains(" · 0 files"), "{}", again.err);
}

/// `exec` appends to each file after it was found and before it is read.
#[test]
fn a_file_that_grows_while_it_is_read_is_named() {
    for (transforms, sink) in
        [("", "{ directory: { path: out } }"), (", lines", "{ file: { path: out/all } }")]
    {
        let house = house_with(&format!(
            "
sources: {{ files: {{ files: {{ path: in }} }} }}
pipelines:
  main:
    from: files
    transforms: [ exec: {{ command: sh, args: ['-c', 'echo more >> in/log'] }}{transforms} ]
    to: out
sinks: {{ out: {sink} }}
"
        ));
        house.write("in/log", b"one\n");
        let said = house.run_well(&["run", "files.yaml"]).err;
        let warning = "log` grew while it was read, from 4 to 9 bytes: a program still writes to it";
        assert!(said.contains(warning), "{said}");
    }
}

/// The command leaves no trace: the new file has the size and the time of the old one.
#[test]
fn a_file_that_a_command_replaces_is_opened_again() {
    let house = house_with(
        "
sources: { files: { files: { path: in } } }
pipelines:
  main:
    from: files
    transforms:
      - check_size: { min_bytes: 1B }
      - exec: { command: sh, args: ['-c', 'printf new > made; touch -r in/log made; mv made in/log'] }
    to: out
sinks: { out: { directory: { path: out } } }
",
    );
    house.write("in/log", b"old");
    house.run_well(&["run", "files.yaml"]);
    assert_eq!(files(&house.path().join("out")), [("log".to_owned(), "new".to_owned())]);
}

const SERVICE: &str = "
version: '1.2'
name: photos
processors:
  - name: archive
    operations:
      - name: filesystem_input_read
        params: { target: { sourceType: value, source: in/* } }
      - name: file_size_validate
        params: { maxFileSize: { sourceType: value, source: 100 } }
      - name: command_exec
        targetFiles: with_errors
        params:
          commandName: { sourceType: value, source: cp }
          commandArgs: { sourceType: value, source: ['{{.AbsolutePath}}', 'rejected/{{.Filename}}'] }
      - name: filesystem_input_write
        params:
          destination: { sourceType: env_var, source: OUT_DIR }
          useOriginalFilename: { sourceType: value, source: true }
";

fn service(house: &House, arguments: &[&str]) -> crate::common::Said {
    let mut line = vec!["run", "service.yml", "photos:archive"];
    line.extend(arguments);
    let mut command = house.command(&line);
    said(command.env("OUT_DIR", "out").env("PATH", "/usr/bin:/bin").output().unwrap())
}

#[test]
fn a_service_definition_runs_unchanged() {
    let house = house_with("");
    fs::create_dir(house.path().join("rejected")).unwrap();
    house.write("service.yml", SERVICE.as_bytes());
    house.write("in/a.md", b"# text");
    house.write("in/b & c.bin", &[0; 50]);
    house.write("in/large.txt", &[b'x'; 200]);
    let ran = service(&house, &[]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    assert_eq!(names(&house.path().join("out")), ["a.txt", "b & c"]);
    assert_eq!(names(&house.path().join("rejected")), ["large.txt"]);
    for line in [
        "Running photos:archive service processor...",
        "[in/a.md] filesystem_input_read FINISHED file read finished",
        "[in/a.md] file_size_validate FINISHED file size is valid",
        "[in/large.txt] file_size_validate FINISHED file size is too big",
        "[in/large.txt] command_exec STARTED command execution has started",
        "[in/b & c.bin] filesystem_input_write FINISHED file write finished",
        "Completed",
        "Failures:",
    ] {
        assert!(ran.out.lines().any(|printed| printed == line), "{line}\n{}", ran.out);
    }
    assert!(ran.out.contains("    [in/large.txt] file size is too big"), "{}", ran.out);
    assert_eq!(service(&house, &["--compat-exit-code", "-c", "-m", "lock"]).code, Some(0));

    // The converted configuration writes the same files; only its printed lines differ.
    let mut convert = house.command(&["convert", "service.yml", "photos:archive", "--output", "own.yaml"]);
    assert!(convert.env("OUT_DIR", "own").status().unwrap().success());
    let mut own = house.command(&["run", "own.yaml"]);
    assert!(own.env("PATH", "/usr/bin:/bin").status().unwrap().success());
    assert_eq!(files(&house.path().join("own")), files(&house.path().join("out")));

    // Without failed files the command has nothing to do.
    fs::remove_file(house.path().join("in/large.txt")).unwrap();
    fs::remove_dir_all(house.path().join("rejected")).unwrap();
    let ran = service(&house, &[]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
}

#[test]
fn a_file_that_a_service_cannot_read_is_a_failed_file() {
    let house = house_with("");
    house.write("service.yml", SERVICE.as_bytes());
    house.write("in/a.txt", b"one");
    std::os::unix::fs::symlink("loop", house.path().join("in/loop")).unwrap();
    let ran = service(&house, &[]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("Failures:\n    [in/loop] "), "{}", ran.out);
    assert!(!house.path().join(".thalweg").exists());
}

#[test]
fn the_plan_of_a_service_is_shown_in_json() {
    let house = house_with("");
    house.write("service.yml", SERVICE.as_bytes());
    let mut command = house.command(&["check", "service.yml", "--json", "--plan"]);
    let checked = said(command.env("OUT_DIR", "out").output().unwrap());
    let checked: serde_json::Value = serde_json::from_str(&checked.out).unwrap();
    assert_eq!(checked["processors"], serde_json::json!(["archive"]));
    assert!(checked["plan"].as_str().is_some_and(|plan| plan.contains("archive")), "{checked}");
}

#[test]
fn a_command_for_a_service_with_other_names_is_rejected() {
    let house = house_with("");
    house.write("service.yml", SERVICE.as_bytes());
    let said = house.run(&["run", "-f", "service.yml", "photos:archive", "extra"]);
    let other_names = "error: a service runs one processor: leave out the other names\n";
    assert_eq!((said.code, said.err.as_str()), (Some(2), other_names));
    let said = house.run(&["errors", "replay", "service.yml"]);
    let replayed = "error: dead letters of a service cannot be replayed: run it again\n";
    assert_eq!((said.code, said.err.as_str()), (Some(2), replayed));
    let said = house.run(&["serve", "service.yml", "-f", "other.yml"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("cannot be used with"), "{}", said.err);
}

#[test]
fn a_service_writes_into_the_folder_that_it_reads_and_destroys_nothing() {
    let house = house_with("");
    house.write("service.yml", SERVICE.as_bytes());
    house.write("in/a.txt", b"one");
    house.write("in/b", b"two");
    let mut command = house.command(&["run", "service.yml", "photos:archive"]);
    let ran = said(command.env("OUT_DIR", "in").output().unwrap());
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert_eq!(files(&house.path().join("in")), [("a.txt".into(), "one".into()), ("b".into(), "two".into())]);
}

#[test]
fn mistakes_in_a_service_are_shown_at_their_position() {
    let house = house_with("");
    house.write("service.yml", SERVICE.replace("with_errors", "with_error").as_bytes());
    let wrong = service(&house, &[]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.contains("service.yml:12") && wrong.err.contains("with_errors"), "{}", wrong.err);
    house.write("service.yml", SERVICE.as_bytes());
    let wrong = house.run(&["run", "service.yml", "photos:archiv"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.contains("did you mean `photos:archive`?"), "{}", wrong.err);
    let unset = house.run(&["run", "service.yml", "photos:archive"]);
    assert_eq!(unset.code, Some(2));
    assert!(unset.err.contains("OUT_DIR"), "{}", unset.err);
}

#[test]
fn a_malformed_etcd_variable_is_a_mistake_of_the_parameter_that_needs_it() {
    let house = house_with("");
    house.write("service.yml", SERVICE.as_bytes());
    let check = |house: &House| {
        let mut command = house.command(&["check", "service.yml"]);
        said(command.env("OUT_DIR", "out").env("ETCD_ENDPOINTS", "nonsense").output().unwrap())
    };
    let right = check(&house);
    assert_eq!((right.code, right.err.as_str()), (Some(0), ""));
    house.write("service.yml", SERVICE.replace("env_var", "etcd").as_bytes());
    let wrong = check(&house);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.contains("`ETCD_ENDPOINTS` is not a list in JSON"), "{}", wrong.err);
}

#[test]
fn a_drain_timeout_is_a_time() {
    let house = house_with("");
    house.write("service.yml", SERVICE.as_bytes());
    assert_eq!(service(&house, &["--drain-timeout", "1m"]).code, Some(0));
    let wrong = service(&house, &["--drain-timeout", "soon"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.contains("--drain-timeout <TIME>"), "{}", wrong.err);
}

#[test]
fn it_is_repeated_as_often_as_asked_for() {
    let house = house_with("");
    house.write("service.yml", SERVICE.as_bytes());
    house.write("in/a.txt", b"one");
    let ran = service(&house, &["--repeat", "--iterations", "3", "--sleep", "0"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert_eq!(ran.out.matches("Completed").count(), 3);
    let mut line =
        house.command(&["run", "service.yml", "photos:archive", "--repeat", "--sleep", "1h", "--quiet"]);
    let mut child = line.env("OUT_DIR", "out").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_run_leaves_no_temporary_files_and_removes_those_of_one_that_was_killed() {
    let house = house_with(
        "
temporary: tmp
sources: { files: { files: { path: in } } }
pipelines:
  main: { from: files, transforms: [compress: { format: zstd }], to: kept }
sinks: { kept: { directory: { path: out } } }
",
    );
    (0..50).for_each(|number| house.write(&format!("in/{number}"), &[b'x'; 1 << 20]));
    let mut child = command(house.path(), &["run", "files.yaml", "--quiet"]).spawn().unwrap();
    let tmp = house.path().join("tmp");
    while fs::read_dir(&tmp).map_or(0, Iterator::count) == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 1);
    house.run_well(&["run", "files.yaml", "--quiet"]);
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0);
    let arrived: BTreeSet<String> = names(&house.path().join("out")).into_iter().collect();
    assert_eq!(arrived.len(), 50);
    assert!(arrived.contains("7.zst"));
}

#[test]
#[cfg(feature = "stores")]
fn of_a_file_elsewhere_a_pipeline_fetches_what_it_reads() {
    let house = House::with(&[]);
    let content: Vec<u8> = (0..8_000_000_u32).map(|number| (number % 251) as u8).collect();
    house.write("large.bin", &content);
    let url = format!("file://{}", house.path().join("large.bin").display());
    let absent = url.replace("large", "absent");
    house.write(
        "parts.yaml",
        format!(
            "sources: {{ far: {{ remote_files: {{ url: ['{url}', '{absent}'], cache: cache }} }} }}
pipelines: {{ main: {{ from: far, transforms: [slice: {{ ranges: ['1000:3kB', '-1KiB:'] }}], to: parts }} }}
sinks: {{ parts: {{ directory: {{ path: out }} }} }}
"
        )
        .as_bytes(),
    );
    house.run_well(&["run", "parts.yaml"]);
    let parts = fs::read(house.path().join("out/large.bin")).unwrap();
    assert_eq!(parts, [&content[1000..3000], &content[content.len() - 1024..]].concat());
    let cached = house.run_well(&["sparse", "stat", "cache"]).out;
    assert!(cached.contains(" KiB of 7.63 MiB"), "more was fetched than what is read: {cached}");
    let listed = house.run_well(&["errors", "list", "parts.yaml"]).out;
    assert!(listed.contains("absent.bin"), "{listed}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_that_exec_started_ends_with_its_processes_when_the_run_is_killed_or_stopped() {
    use rustix::process::{Pid, Signal, kill_process};
    for signal in [Signal::KILL, Signal::TERM] {
        let house = House::with(&[(
            "exec.yaml",
            "sources: { files: { files: { path: in } } }\n\
             pipelines:\n  main:\n    from: files\n    transforms:\n\
             \x20     - exec: { command: sh, args: ['-c', 'sleep 600 & echo $$$$ $! > new; mv new pids; wait'] }\n    to: kept\n\
             sinks: { kept: { directory: { path: out } } }\n",
        )]);
        fs::create_dir(house.path().join("in")).unwrap();
        house.write("in/a.txt", b"a");
        let mut run = house.command(&["run", "exec.yaml", "--quiet"]).spawn().unwrap();
        let programs = loop {
            if let Ok(programs) = fs::read_to_string(house.path().join("pids")) {
                break programs;
            }
            assert!(run.try_wait().unwrap().is_none(), "it ended before it started the program");
            std::thread::sleep(Duration::from_millis(10));
        };
        // The second signal does not wait for the program.
        for _ in 0..2 {
            let _ = kill_process(Pid::from_child(&run), signal);
            std::thread::sleep(Duration::from_secs(1));
        }
        run.wait().unwrap();
        programs.split_whitespace().for_each(wait_for_the_end);
    }
}

/// The process that inherits a program may not have reaped it yet: a zombie has ended. By itself, the program
/// ends much later.
#[cfg(target_os = "linux")]
fn wait_for_the_end(program: &str) {
    let status = format!("/proc/{program}/status");
    let runs = || fs::read_to_string(&status).is_ok_and(|status| !status.contains("State:\tZ"));
    for _ in 0..6000 {
        if !runs() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the program still runs");
}
