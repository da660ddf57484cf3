//! Tests whole definitions.

use super::*;

/// The definition of the benchmark.
const COPY: &str = r#"version: '1.2'
name: bench
processors:
  - name: copy
    operations:
      - name: filesystem_input_read
        params: { target: { sourceType: env_var, source: IN_GLOB } }
      - name: file_size_validate
        params:
          minFileSize: { sourceType: value, source: 1 }
          maxFileSize: { sourceType: value, source: 10485760 }
      - name: file_type_validate
        params: { allowedMimeTypes: { sourceType: value, source: [application/octet-stream, text/plain] } }
      - name: filesystem_input_write
        params:
          destination: { sourceType: env_var, source: OUT_DIR }
          useOriginalFilename: { sourceType: value, source: true }
"#;

const IMAGE: &str = r#"version: '1.2'
name: bench
processors:
  - name: image
    operations:
      - name: filesystem_input_read
        params: { target: { sourceType: env_var, source: IN_GLOB } }
      - name: file_size_validate
        params:
          maxFileSize: { sourceType: value, source: 10485760 }
      - name: file_type_validate
        params: { allowedMimeTypes: { sourceType: value, source: [image/jpeg, image/png] } }
      - name: image_convert
        cleanupPolicy: remove_files
        params:
          toMimeType: { sourceType: env_var, source: TO_MIME }
          quality: { sourceType: value, source: high }
      - name: filesystem_input_write
        params:
          destination: { sourceType: env_var, source: OUT_DIR }
          useOriginalFilename: { sourceType: value, source: true }
"#;

fn measured() -> TestEnvironment {
    let variables = [("IN_GLOB", "/in/*"), ("OUT_DIR", "/out"), ("TO_MIME", "image/webp")];
    TestEnvironment { variables: variables.into(), ..TestEnvironment::default() }
}

#[test]
fn files_that_are_checked_and_copied() {
    assert_snapshot!(measured().converted(COPY));
}

#[test]
fn images_that_are_converted() {
    assert_snapshot!(measured().converted(IMAGE));
}

#[test]
fn uploads_in_json_with_tabs_and_escapes() {
    let text = "{\n\t\"version\": \"1.2\",\n\t\"Name\": \"photos\",\n\t\"processors\": [{\n\t\t\"name\": \"avat\\u00e4r\",\n\
                \t\t\"operations\": [\n\t\t\t{\"name\": \"http_multipart_form_input_read\"},\n\
                \t\t\t{\"name\": \"file_size_validate\", \"params\": {\"maxFileSize\": {\"SourceType\": \"value\", \"source\": 5242880}}},\n\
                \t\t\t{\"name\": \"filesystem_input_write\", \"params\": {\"destination\": {\"sourceType\": \"value\", \"source\": \"\\/var\\/a\\tb\"},\n\
                \t\t\t\t\"useOriginalFilename\": {\"sourceType\": \"value\", \"source\": 0}}}\n\t\t]\n\t}]\n}\n";
    assert_snapshot!(converted(text));
}

#[test]
fn every_operation_in_two_phases() {
    let text = r#"
version: "1.2"
name: archive
processors:
  - name: old logs
    operations:
      - name: filesystem_input_read
        params: { target: { sourceType: value, source: "/var/log/**/*.{log,txt}" } }
      - name: file_time_validate
        params:
          maxMtime: { sourceType: value, source: 2024-02-14T00:00:00Z }
          minCtime: { sourceType: value, source: "2020-01-01T00:00:00+01:00" }
      - name: command_exec
        maxPacketSize: 4
        ioTickDelay: 10ms
        cleanupPolicy: remove_files
        params:
          commandName: { sourceType: value, source: gzip }
          commandArgs: { sourceType: value, source: ["-c", "{{.AbsolutePath}}", "{x} ${HOME}", 9] }
          outputFileDestination: { sourceType: value, source: "/tmp/{{ .Basename }}{{.OriginalExtension}}.gz" }
          allowParallelExecution: { sourceType: value, source: false }
      - name: filesystem_input_remove
        targetFiles: all
        maxPacketSize: 2
        params: { removeOriginalFile: { sourceType: value, source: True } }
      - name: filesystem_input_read
        targetFiles: all
        params: { target: { sourceType: value, source: /in/*.jpg } }
      - name: exiftool_metadata_cleanup
        params: { overwriteOriginalFile: { sourceType: value, source: "1" } }
      - name: image_convert
        params: { toMimeType: { sourceType: value, source: image/heic } }
      - name: file_type_validate
        params: { allowedMimeTypes: { sourceType: value, source: [image/*, text/plain; charset=utf-8] } }
      - name: filesystem_input_write
        targetFiles: with_errors
        params: { destination: { sourceType: value, source: /quarantine } }
      - name: input_forget
        targetFiles: with_errors
"#;
    assert_snapshot!(converted(text));
    let document = Document::parse("service.yml", text).unwrap();
    let phases = TestEnvironment::default().read(&document, Some("old logs")).unwrap();
    let names = |phase: &Phase| {
        let steps = std::iter::once(&phase.reading).chain(&phase.steps);
        steps.map(|step| format!("{} {}", step.index, step.operation.name())).collect::<Vec<_>>()
    };
    assert_eq!(
        phases.iter().map(names).collect::<Vec<_>>(),
        [
            vec![
                "0 filesystem_input_read",
                "1 file_time_validate",
                "2 command_exec",
                "3 filesystem_input_remove"
            ],
            vec![
                "4 filesystem_input_read",
                "5 exiftool_metadata_cleanup",
                "6 image_convert",
                "7 file_type_validate",
                "8 filesystem_input_write",
                "9 input_forget"
            ]
        ]
    );
}

#[test]
fn an_upload_is_told_where_and_by_whom() {
    let text = |endpoint: &str| {
        format!(
            r#"
name: archive
processors:
  - name: photos
    operations:
      - name: filesystem_input_read
        params: {{ target: {{ sourceType: value, source: "/in/*" }} }}
      - name: s3_upload
        params:
          accessKeyId: {{ sourceType: value, source: AKIA }}
          secretAccessKey: {{ sourceType: value, source: "a+b/c=d" }}
          endpoint: {{ sourceType: value, source: "{endpoint}" }}
          region: {{ sourceType: value, source: eu-west-1 }}
          bucket: {{ sourceType: value, source: photos }}
"#
        )
    };
    let url = |endpoint: &str| {
        let converted = converted(&text(endpoint));
        converted
            .lines()
            .find_map(|line| line.split_once("url: "))
            .map(|(_, url)| url.trim_matches('"').to_owned())
            .unwrap()
    };
    let by = "&access_key_id=AKIA&secret_access_key=a%2Bb/c%3Dd";
    let there = |endpoint: &str| format!("s3://photos/?region=eu-west-1&endpoint={endpoint}{by}");
    assert_eq!(
        url("s3.amazonaws.com"),
        there("https://s3.amazonaws.com") + "&enable_virtual_host_style=true"
    );
    assert_eq!(
        url("https://{bucket}.s3.{region}.example.org"),
        there("https://s3.eu-west-1.example.org") + "&enable_virtual_host_style=true"
    );
    assert_eq!(url("http://localhost:9000"), there("http://localhost:9000"));
}

#[test]
fn one_processor_of_several_and_what_the_others_lack_does_not_matter() {
    let text = r#"
name: 2024
processors:
  - name: input
    operations:
      - { name: filesystem_input_read, params: { target: { sourceType: env_var, source: MISSING } } }
  - name: a/b
    operations:
      - { name: filesystem_input_read, params: { target: { sourceType: value, source: x } } }
"#;
    let document = Document::parse("service.yml", text).unwrap();
    let phases = TestEnvironment::default().read(&document, Some("a/b")).unwrap();
    assert_eq!((phases.len(), phases[0].pipeline.as_str(), phases[0].processor.as_str()), (1, "a-b", "a/b"));
    let lacking = TestEnvironment::default().read(&document, Some("input")).unwrap_err();
    assert_eq!(
        lacking.to_string(),
        "service.yml:6:89: environment variable \"MISSING\" can not be found. Please make sure it is set"
    );
    let wrong = TestEnvironment::default().read(&document, Some("inputs")).unwrap_err();
    assert_eq!(wrong.to_string(), "service.yml:3:1: Processor \"inputs\" not found (Did you mean `input`?)");
    let service = service(&document).unwrap();
    assert_eq!((service.name.as_str(), service.processors.join(" ").as_str()), ("2024", "input a/b"));
    let variables = [("MISSING", "/in/*")].into();
    let phases = TestEnvironment { variables, ..TestEnvironment::default() }.read(&document, None).unwrap();
    assert_eq!(phases[0].pipeline, "input-files");
    printed(&phases[0], text);
}

#[test]
fn json_beyond_the_basic_plane_and_without_spaces() {
    let text = "{\"processors\": [{\"name\": \"a\\ud83d\\ude00\", \"operations\": [{\"name\": \"http_octet_stream_input_read\"}]}]}";
    let document = Document::parse("service.json", text).unwrap();
    assert_eq!(service(&document).unwrap().processors, ["a😀"]);
    let compact = r#"{"name":"s","processors":[{"name":"p","operations":[{"name":"file_size_validate","params":{"minFileSize":{"sourceType":"value","source":1e3}}}]}]}"#;
    let document = Document::parse("service.json", compact).unwrap();
    let wrong = TestEnvironment::default().read(&document, None).unwrap_err().to_string();
    assert!(wrong.contains("has no operation before this one that reads files"), "{wrong}");
    assert_eq!(wrong.lines().count(), 1);
}

#[test]
fn remarks_stand_where_they_belong() {
    let text = r#"
name: s
author: me
processors:
  - name: a
    color: red
    operations:
      - { name: http_octet_stream_input_read, note: 1 }
      - { name: filesystem_input_remove, params: { removeOriginalFile: { sourceType: http_get, source: all } } }
  - name: b
    operations:
      - { name: http_octet_stream_input_read }
    color: blue
"#;
    let document = Document::parse("service.yml", text).unwrap();
    let request = Request { query: vec![("all".to_owned(), "true".to_owned())], ..Request::default() };
    let environment = TestEnvironment { request: Some(request), ..TestEnvironment::default() };
    let phases = environment.read(&document, Some("a")).unwrap();
    assert_snapshot!(printed(&phases[0], text));
    assert_eq!(phases[0].conversion.remarks.len(), 3);
}
