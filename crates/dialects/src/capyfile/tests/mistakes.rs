//! Tests wrong definitions: all mistakes are reported at once, each at its position. Includes input that
//! capyfile crashed on or misread.

use super::*;

#[test]
fn every_kind_of_mistake_in_one_file() {
    let text = r#"
vershion: "1.2"
name: [a]
author: me
processors:
  - name: p
    color: red
    operations:
      - name: filesystem_input_raed
      - name: filesystem_input_read
        parms: {}
        params: { traget: { sourceType: value, source: a } }
      - name: file_size_validate
        targetfiles: all
        targetFiles: with_error
        cleanupPolicy: delete
        maxPacketSize: -1
        ioTickDelay: 10
        statusTickDelay: 1s
        whatever: 1
        params:
          minFileSize: { sourceType: value, source: 5 MB }
          maxFileSize: { sourceType: value, source: null }
      - name: file_size_validate
        params:
          minFileSize: { sourceType: value, source: 0 }
          maxFileSize: { sourceType: value, source: 0 }
      - name: file_type_validate
        params: { allowedMimeTypes: { sourceType: value, source: [] } }
      - name: file_type_validate
        params: { allowedMimeTypes: { sourceType: value, source: [jpeg, [a]] } }
      - name: file_type_validate
        params: { allowedMimeTypes: { sourceType: value, source: [jpeg] } }
      - name: file_time_validate
      - name: file_time_validate
        params: { minMtime: { sourceType: value, source: 2024-13-01T00:00:00Z } }
      - name: image_convert
        params:
          toMimeType: { sourceType: value, source: image/jpg }
          quality: 80
      - name: image_convert
        params:
          toMimeType: { sourceType: value, source: application/pdf }
          quality: { sourceType: valeu, source: high }
      - name: command_exec
        params:
          commandName: { sourceType: value, source: "{{.Filenam}}" }
          commandArgs: { sourceType: value, source: ["{{if .Filename}}x{{end}}", "{{"] }
          allowParallelExecution: { sourceType: value, source: null }
      - name: filesystem_input_write
        params: { destination: { sourceType: value, source: "" }, useOriginalFilename: { source: 1 } }
      - name: filesystem_input_remove
        params: { removeOriginalFile: { sourceType: value, source: yes } }
      - name: exiftool_metadata_cleanup
        params:
          overrideOriginalFile: { sourceType: value }
          overwriteOriginalFile: { sourceType: value, source: 1.5 }
      - name: s3_upload
      - params: {}
      - text
  - name: p
    operations: []
  - name: q
    operations:
  - name: r
  - name: u
    operations:
      - { name: http_octet_stream_input_read }
      - { name: http_multipart_form_input_read }
  - name: w
    operations:
      - { name: input_forget }
  - operations: { name: input_forget }
  - text
"#;
    let document = Document::parse("service.yml", text).unwrap();
    let wrong = TestEnvironment::default().read(&document, None).unwrap_err();
    assert!(matches!(wrong, LoadError::Definition(_)));
    assert_snapshot!(wrong.diagnostics().render(false));
}

#[test]
fn documents_that_are_none() {
    let refused =
        |document: &Document| TestEnvironment::default().read(document, None).unwrap_err().to_string();
    for (text, message) in [
        (
            "processors:",
            "service.yml:1:11: `processors` is empty. (Add at least one: a `name` and `operations`.)",
        ),
        (
            "processors: []",
            "service.yml:1:13: `processors` is empty. (Add at least one: a `name` and `operations`.)",
        ),
        (
            "processors: [{ name: a }]",
            "service.yml:1:14: The processor `a` has no `operations`. (Add at least one that reads files: `- name: filesystem_input_read`.)",
        ),
    ] {
        let document = Document::parse("service.yml", text).unwrap();
        assert!(is_capyfile(&document), "{text}");
        assert_eq!(refused(&document), message, "{text}");
        assert_eq!(service(&document).unwrap_err().to_string(), message, "{text}");
        assert!(!needs_request(&document, "a"), "{text}");
    }
    for (text, message) in [
        (
            "a: 1",
            "service.yml:1:1: There are no `processors`. (Add `processors:` with a list of at least one: a `name` and `operations`.)",
        ),
        (
            "- a",
            "service.yml:1:1: A service definition is a mapping, but this is a list. (Write `name:` and `processors:`.)",
        ),
        (
            "text",
            "service.yml:1:1: A service definition is a mapping, but this is text. (Write `name:` and `processors:`.)",
        ),
        (
            "processors: { a: 1 }",
            "service.yml:1:13: `processors` is a list, but this is a mapping. (Put a `-` before each of its elements.)",
        ),
        (
            "{ sources: {}, processors: [] }",
            "service.yml:1:28: `processors` is empty. (Add at least one: a `name` and `operations`.)",
        ),
        (
            "processors: [1]",
            "service.yml:1:14: A processor is a mapping, but this is a number. (Write `name:` and `operations:`.)",
        ),
    ] {
        let document = Document::parse("service.yml", text).unwrap();
        assert!(!is_capyfile(&document), "{text}");
        assert_eq!(refused(&document), message, "{text}");
    }
    assert_eq!(
        Document::parse("service.yml", "").unwrap_err().to_string(),
        "service.yml:1:1: `service.yml` is empty. (Nothing but comments or blank space was found in it.)"
    );
}

#[test]
fn a_typo_in_target_files_is_a_mistake_and_drops_nothing() {
    let text = operation("- { name: input_forget, targetFiles: with_eror }");
    assert_snapshot!(converted(&text));
}

#[test]
fn a_scalar_for_a_list_is_a_list_of_one() {
    let lines = "- name: file_type_validate\n  params: { allowedMimeTypes: { sourceType: value, source: image/jpeg } }";
    assert_snapshot!(transforms(lines));
}

#[test]
fn numbers_and_times_without_quotes_are_texts() {
    let lines = "- name: image_convert\n  params: { toMimeType: { sourceType: value, source: image/png }, quality: { sourceType: value, source: 80 } }\n\
                 - name: file_time_validate\n  params: { minAtime: { sourceType: value, source: 2024-02-14T10:00:00.5+01:00 } }\n\
                 - name: image_convert\n  params: { toMimeType: { sourceType: value, source: image/png }, quality: { sourceType: value, source: hihg } }\n\
                 - name: file_size_validate\n  params: { minFileSize: { sourceType: value, source: 1.9 }, maxFileSize: { sourceType: value, source: '2000' } }";
    assert_snapshot!(transforms(lines));
}

#[test]
fn a_policy_that_means_nothing_is_said() {
    let lines = "- name: image_convert\n  cleanupPolicy: keep_files\n  params: { toMimeType: { sourceType: value, source: image/png }, quality: { sourceType: value, source: low } }\n\
                 - name: filesystem_input_write\n  cleanupPolicy: remove_files\n  params: { destination: { sourceType: value, source: /out }, useOriginalFilename: { sourceType: value, source: no } }";
    assert_snapshot!(transforms(lines));
    let lines = "- name: filesystem_input_write\n  cleanupPolicy: remove_files\n  params: { destination: { sourceType: value, source: /out }, useOriginalFilename: { sourceType: value, source: F } }";
    assert_snapshot!(transforms(lines));
}

#[test]
fn patterns_that_go_refuses() {
    let text = "name: s\nprocessors: [{ name: p, operations: [{ name: filesystem_input_read, params: { target: { sourceType: value, source: '/in/[a' } } }] }]";
    assert_snapshot!(converted(text));
}

#[test]
fn a_key_of_another_case_is_a_mistake_in_yaml_and_none_in_json() {
    assert!(
        converted(&operation("- name: input_forget\n  targetfiles: all"))
            .contains("Did you mean `targetFiles`?")
    );
    let json = r#"{"processors": [{"name": "p", "operations": [{"name": "http_octet_stream_input_read"},
        {"Name": "input_forget", "TARGETFILES": "all"}]}]}"#;
    assert!(converted(json).contains("for: all"));
}

#[test]
fn what_is_cut_off_anywhere_is_read_without_panic() {
    let text = operation(
        "- name: command_exec\n  targetFiles: all\n  params: { commandName: { sourceType: value, source: '{{.Filename}}' }, \
         commandArgs: { sourceType: env_var, source: A } }\n- name: filesystem_input_write\n  params: { destination: { sourceType: etcd, source: /region } }",
    );
    for end in 0..text.len() {
        for text in
            [text[..end].to_owned(), text[end..].to_owned(), format!("{}é{}", &text[..end], &text[end..])]
        {
            let Ok(document) = Document::parse("service.yml", &text) else { continue };
            let _ = (is_capyfile(&document), service(&document).is_ok(), needs_request(&document, "p"));
            match TestEnvironment::default().read(&document, None) {
                Ok(phases) => assert!(!phases.is_empty(), "{text}"),
                Err(wrong) => assert!(!wrong.diagnostics().is_empty(), "{text}"),
            }
        }
    }
}

#[test]
fn a_negative_size_is_no_bound_and_bounds_that_exclude_each_other_are_a_mistake() {
    let sizes = |least: i64, most: i64| {
        transforms(&format!(
            "- name: file_size_validate\n  params: {{ minFileSize: {{ sourceType: value, source: {least} }}, maxFileSize: {{ sourceType: value, source: {most} }} }}"
        ))
    };
    assert!(sizes(0, -3).contains("check_size: { min_bytes: 0B }"), "{}", sizes(0, -3));
    assert!(sizes(-3, 7).contains("max_bytes: 7B"), "{}", sizes(-3, 7));
    assert!(sizes(9, 7).contains("no file has at least"), "{}", sizes(9, 7));
}

#[test]
fn an_upload_that_fails_is_a_problem_of_its_file() {
    let value = |name: &str| format!("{name}: {{ sourceType: value, source: x }}");
    let parameters = ["accessKeyId", "secretAccessKey", "endpoint", "region", "bucket"].map(value).join(", ");
    let upload = transforms(&format!("- name: s3_upload\n  params: {{ {parameters} }}"));
    assert!(upload.contains("on_failure: reject"), "{upload}");
}
