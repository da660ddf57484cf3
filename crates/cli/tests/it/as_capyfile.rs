//! capyfile's service definitions in the hands of its users: its command lines, and parameters from a real
//! etcd and for a real S3 server.

use std::fs;
use std::process::Command;

use thalweg_testbed::{Etcd, S3};

use crate::common::{House, Said, said};

const SERVICE: &str = "\
version: '1.2'
name: photos
processors:
  - name: local
    operations:
      - name: filesystem_input_read
        params: { target: { sourceType: value, source: 'in/*' } }
      - name: file_size_validate
        params: { maxFileSize: { sourceType: value, source: 10 } }
      - name: filesystem_input_write
        params:
          destination: { sourceType: value, source: out }
          useOriginalFilename: { sourceType: value, source: true }
  - name: form
    operations:
      - name: http_multipart_form_input_read
      - name: file_size_validate
        params: { maxFileSize: { sourceType: value, source: 10 } }
  - name: kept
    operations:
      - name: filesystem_input_read
        params: { target: { sourceType: etcd, source: /photos/target } }
      - name: s3_upload
        params:
          accessKeyId: { sourceType: etcd, source: /photos/key }
          secretAccessKey: { sourceType: etcd, source: /photos/secret }
          endpoint: { sourceType: etcd, source: /photos/endpoint }
          region: { sourceType: value, source: us-east-1 }
          bucket: { sourceType: env_var, source: BUCKET }
";

fn house() -> House {
    let house = House::with(&[("service.yml", SERVICE)]);
    fs::create_dir(house.path().join("in")).unwrap();
    house.write("in/small", b"small");
    house.write("in/large", b"larger than ten bytes");
    house
}

#[test]
fn a_processor_of_the_server_is_refused_by_run_which_names_serve() {
    for arguments in
        [&["run", "service.yml", "photos:form"][..], &["capycmd", "-f", "service.yml", "photos:form"]]
    {
        let said = house().run(arguments);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{}", said.err);
        let message =
            "`http_multipart_form_input_read` reads the files of an HTTP request, which `run` does not have.";
        assert!(said.err.contains(message), "{}", said.err);
        assert!(said.err.contains("Serve the definition: `thalweg serve service.yml`."), "{}", said.err);
        assert!(said.err.contains("service.yml:16:15"), "{}", said.err);
    }
}

/// The lines of capyfile 1.2.5, without colours. Files are processed concurrently, so only the lines of each
/// file are in order.
const LINES: [&str; 11] = [
    "Completed",
    "Failures:",
    "Running photos:local service processor...",
    "[in/large] file_size_validate FINISHED file size is too big",
    "[in/large] file_size_validate STARTED file size validation started",
    "[in/large] filesystem_input_read FINISHED file read finished",
    "[in/small] file_size_validate FINISHED file size is valid",
    "[in/small] file_size_validate STARTED file size validation started",
    "[in/small] filesystem_input_read FINISHED file read finished",
    "[in/small] filesystem_input_write FINISHED file write finished",
    "[in/small] filesystem_input_write STARTED file write started",
];

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn the_lines_and_the_exit_code_of_capycmd_are_those_of_capyfile() {
    let house = house();
    let said = house.run(&["capycmd", "-f", "service.yml", "-c", "-m", "event", "photos:local"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let skipped =
        "[in/large] filesystem_input_write SKIPPED skipped due to \"without_errors\" target files policy";
    let expected = |skipped: Option<&'static str>| {
        let mut expected = vec!["    [in/large] file size is too big"];
        expected.extend(LINES.into_iter().chain(skipped));
        expected.sort_unstable();
        expected
    };
    assert_eq!(sorted(&said.out), expected(Some(skipped)));
    let reason = "[in/large] the file's size is 21B, which is greater than 10B";
    assert!(said.err.contains(reason), "{}", said.err);
    let sequential = house.run(&["capycmd", "-f", "service.yml", "photos:local"]);
    assert_eq!(sorted(&sequential.out), expected(None));
    assert_eq!(house.read("out/small"), "small");
    assert_eq!(house.run(&["run", "service.yml", "photos:local"]).code, Some(1));
}

#[test]
fn capyworker_repeats_into_its_log_file() {
    let house = house();
    let options = ["-f", "service.yml", "--sleep=0", "-i", "2", "-l", "log.txt", "photos:local"];
    let said = house.run(&[&["capyworker"][..], &options].concat());
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "", ""));
    let log = house.read("log.txt");
    assert_eq!(log.matches("\nCompleted\n").count(), 2, "{log}");
    let help = house.run(&["capyworker"]);
    assert!(help.code == Some(0) && help.out.contains("--max-iterations"), "{}", help.out);
}

/// Runs the processor that uploads, with an etcd that has its parameters.
fn kept(house: &House, etcd: &Etcd, extra: &[(&str, &str)]) -> Said {
    let mut command: Command = house.command(&["run", "service.yml", "photos:kept"]);
    command.env("ETCD_ENDPOINTS", format!("[\"{}\"]", etcd.address())).env("BUCKET", "bucket");
    said(command.envs(extra.iter().copied()).output().unwrap())
}

#[test]
fn parameters_of_etcd_upload_to_a_store() {
    let (house, etcd, store) = (house(), Etcd::start().unwrap(), S3::start().unwrap());
    store.create_bucket("bucket").unwrap();
    let endpoint = store.endpoint();
    for (key, value) in [
        ("/photos/target", "in/*"),
        ("/photos/key", store.access_key()),
        ("/photos/secret", store.secret_key()),
    ] {
        etcd.put(key, value).unwrap();
    }
    let missing = kept(&house, &etcd, &[]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.err.contains("etcd key \"/photos/endpoint\" can not be read"), "{}", missing.err);
    etcd.put("/photos/endpoint", &endpoint).unwrap();
    let uploads = |expected: usize| {
        let said = kept(&house, &etcd, &[("ETCD_USERNAME", "root"), ("ETCD_PASSWORD", "pass")]);
        assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
        let mut stored: Vec<_> = fs::read_dir(store.folder().join("bucket"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .map(|path| (path.extension().map(|suffix| suffix.to_owned()), fs::read_to_string(path).unwrap()))
            .collect();
        stored.sort();
        stored.dedup();
        let text = Some("txt".into());
        assert_eq!(stored, [(text.clone(), "larger than ten bytes".to_owned()), (text, "small".to_owned())]);
        assert_eq!(said.out.matches("s3_upload FINISHED S3 file upload has finished").count(), expected);
    };
    assert_eq!(kept(&house, &etcd, &[]).code, Some(0));
    etcd.require_password("pass").unwrap();
    uploads(2);
    let refused = kept(&house, &etcd, &[("ETCD_USERNAME", "root"), ("ETCD_PASSWORD", "wrong")]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("invalid user ID or password"), "{}", refused.err);
    let mut without = house.command(&["run", "service.yml", "photos:kept"]);
    without.env("ETCD_ENDPOINTS", "[\"127.0.0.1:1\"]").env("BUCKET", "bucket");
    let without = said(without.output().unwrap());
    assert_eq!(without.code, Some(2));
    assert!(without.err.contains("etcd at http://127.0.0.1:1"), "{}", without.err);
}
