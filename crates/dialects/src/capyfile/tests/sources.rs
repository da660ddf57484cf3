//! Tests the sources of parameters.

use super::*;

fn text(source_type: &str, source: &str, parameter: &str, kind: &str) -> String {
    operation(&format!(
        "- name: {kind}\n  params:\n    {parameter}: {{ sourceType: {source_type}, source: {source} }}\n    \
         destination: {{ sourceType: value, source: /out }}"
    ))
}

fn environment() -> TestEnvironment {
    let pairs = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect::<Vec<_>>()
    };
    TestEnvironment {
        variables: [("SIZE", "7"), ("EMPTY", ""), ("LIST", r#"["a/b", "c/d"]"#), ("WORD", "x"), ("YES", "t")]
            .into(),
        files: [("/etc/size", "8\n"), ("/run/secrets/size", "9\r\n"), ("/etc/two", "8\n\n")].into(),
        request: Some(Request {
            query: pairs(&[("size", "10"), ("none", ""), ("bad", "ten")]),
            form: pairs(&[("posted", "11")]),
            headers: pairs(&[("X-Size", "12")]),
        }),
    }
}

fn size(environment: &TestEnvironment, source_type: &str, source: &str) -> String {
    let text = operation(&format!(
        "- name: file_size_validate\n  params: {{ minFileSize: {{ sourceType: {source_type}, source: {source} }} }}"
    ));
    let document = Document::parse("service.yml", &text).unwrap();
    match environment.read(&document, Some("p")) {
        Ok(phases) => {
            let printed = printed(&phases[0], &text);
            let from = printed.find("min_bytes: ").unwrap();
            printed[from..].split(" }").next().unwrap().to_owned()
        }
        Err(LoadError::Definition(wrong)) => wrong.to_string(),
        Err(LoadError::Request(wrong)) => format!("request: {wrong}"),
        Err(LoadError::Operation { operation, message, .. }) => format!("{}: {message}", operation.name()),
    }
}

#[test]
fn each_type_of_source_has_its_value() {
    let environment = environment();
    for (source_type, source, expected) in [
        ("value", "'6'", "min_bytes: 6B"),
        ("env_var", "SIZE", "min_bytes: 7B"),
        ("file", "/etc/size", "min_bytes: 8B"),
        ("secret", "size", "min_bytes: 9B"),
        ("http_get", "size", "min_bytes: 10B"),
        ("http_post", "posted", "min_bytes: 11B"),
        ("http_post", "size", "min_bytes: 10B"),
        ("http_header", "x-size", "min_bytes: 12B"),
    ] {
        assert_eq!(size(&environment, source_type, source), expected, "{source_type}");
    }
    let region =
        environment.converted(&text("etcd", "/region", "destination", "filesystem_input_write").replace(
            "    destination: { sourceType: value, source: /out }\n",
            "    useOriginalFilename: { sourceType: env_var, source: YES }\n",
        ));
    assert!(region.contains("path: us-east-1") && region.contains("{original_stem}"), "{region}");
}

#[test]
fn what_is_missing_is_said_in_the_words_that_scripts_know() {
    let environment = environment();
    let said: Vec<String> = [
        ("env_var", "NONE"),
        ("file", "/etc/none"),
        ("file", "/etc/two"),
        ("secret", "none"),
        ("http_get", "none"),
        ("http_get", "bad"),
        ("http_post", "nowhere"),
        ("http_header", "nowhere"),
        ("etcd", "/none"),
        ("etcd", "/broken"),
        ("env_var", "WORD"),
        ("env_var", "[a]"),
        ("value", "true"),
        ("value", "5GB"),
        ("value", "99999999999999999999"),
    ]
    .map(|(source_type, source)| size(&environment, source_type, source))
    .into();
    assert_snapshot!(said.join("\n"));
    let nobody = TestEnvironment::default();
    let said = size(&nobody, "http_get", "size");
    assert!(
        said.ends_with("`http_get` parameters exist only where a request is served: use `thalweg serve`."),
        "{said}"
    );
}

#[test]
fn lists_from_elsewhere_are_json() {
    let types = |source: &str| {
        let text = operation(&format!(
            "- name: file_type_validate\n  params: {{ allowedMimeTypes: {{ sourceType: env_var, source: {source} }} }}"
        ));
        environment().converted(&text)
    };
    assert!(types("LIST").contains("allow: [a/b, c/d]"), "{}", types("LIST"));
    assert_snapshot!([types("WORD"), types("EMPTY")].join("\n"));
}

#[test]
fn who_needs_a_request() {
    for (source_type, needs) in
        [("value", false), ("env_var", false), ("http_get", true), ("http_header", true)]
    {
        let text = text(source_type, "a", "useOriginalFilename", "filesystem_input_write");
        let document = Document::parse("service.yml", &text).unwrap();
        assert_eq!(needs_request(&document, "p"), needs, "{source_type}");
        assert!(!needs_request(&document, "q"));
    }
    let upload = "processors: [{ name: p, operations: [{ name: http_octet_stream_input_read }] }]";
    assert!(needs_request(&Document::parse("service.yml", upload).unwrap(), "p"));
}

#[test]
fn a_processor_that_reads_a_request_is_refused_where_there_is_none() {
    let text = "processors:
  - name: form
    operations: [{ name: http_multipart_form_input_read }]
  - name: body
    operations: [{ name: http_octet_stream_input_read }]
  - name: local
    operations: [{ name: filesystem_input_read, params: { target: { sourceType: value, source: a } } }]";
    let document = Document::parse("service.yml", text).unwrap();
    let refused = |processor| refuse_requests(&document, processor).map_err(|wrong| wrong.to_string());
    assert_eq!(refused("local"), Ok(()));
    assert_snapshot!([refused("form"), refused("body")].map(Result::unwrap_err).join("\n"));
}

#[test]
fn a_definition_is_checked_before_there_is_a_request() {
    let document = |types: &str| {
        let lines = format!(
            "- name: file_size_validate\n  params: {{ minFileSize: {{ sourceType: http_get, source: size }} }}\n\
             - name: file_type_validate\n  params: {{ allowedMimeTypes: {{ sourceType: {types} }} }}"
        );
        Document::parse("service.yml", &operation(&lines)).unwrap()
    };
    let nobody = TestEnvironment::default();
    let check = |document: &Document| {
        let environment = Environment { variable: &|_| None, ..Environment::of_this_process() };
        crate::capyfile::check(document, environment)
    };
    let right = document("http_post, source: types");
    assert!(check(&right).unwrap().is_empty());
    assert!(matches!(nobody.read(&right, None), Err(LoadError::Definition(_))));
    let wrong = document("env_var, source: TYPES");
    assert!(
        check(&wrong).unwrap_err().to_string().contains("environment variable \"TYPES\" can not be found")
    );
}

#[test]
fn files_of_this_machine_are_read_up_to_a_bound() {
    let around = Environment::of_this_process();
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    assert!((around.file)(&manifest).unwrap().contains("thalweg-dialects"));
    let kind = |path: &str| (around.file)(Path::new(path)).unwrap_err().kind();
    assert_eq!(kind("/no/such/file"), std::io::ErrorKind::NotFound);
    #[cfg(unix)]
    assert_eq!(kind("/dev/zero"), std::io::ErrorKind::FileTooLarge);
}

#[test]
fn a_type_of_the_request_that_images_cannot_have_is_named_in_capyfiles_words() {
    let text = operation(
        "- name: image_convert\n  params: { toMimeType: { sourceType: http_get, source: to }, quality: { sourceType: value, source: low } }",
    );
    let document = Document::parse("service.yml", &text).unwrap();
    let query = vec![("to".to_owned(), "image/x".to_owned())];
    let environment = TestEnvironment {
        request: Some(Request { query, ..Request::default() }),
        ..TestEnvironment::default()
    };
    let Err(LoadError::Operation { operation, message, .. }) = environment.read(&document, Some("p")) else {
        panic!("it can not work");
    };
    assert_eq!(operation.name(), "image_convert");
    assert_eq!(message, "image conversion to \"image/x\" MIME type is not supported");
}

#[test]
fn a_wrong_value_from_outside_of_the_definition_is_not_shown() {
    let environment = TestEnvironment {
        variables: [("PLANTED", "planted{{no}}"), ("TYPES", "[\"planted\", \"plant/*; ed\"]")].into(),
        ..TestEnvironment::default()
    };
    let lines = "- name: image_convert\n  params: { toMimeType: { sourceType: env_var, source: PLANTED }, quality: { sourceType: env_var, source: PLANTED } }\n\
                 - name: file_type_validate\n  params: { allowedMimeTypes: { sourceType: env_var, source: TYPES } }\n\
                 - name: command_exec\n  params: { commandName: { sourceType: env_var, source: PLANTED }, outputFileDestination: { sourceType: env_var, source: PLANTED } }";
    let said = environment.converted(&operation(lines));
    assert!(!said.contains("plant"), "{said}");
    for mistake in [
        "The value of `toMimeType` is not a type that images can be converted to.",
        "The value of `allowedMimeTypes` is not a MIME type.",
        "The value of `commandName` is not a template with variables only.",
        "The value of `outputFileDestination` is not a template with variables only.",
    ] {
        assert!(said.contains(mistake), "{said}");
    }
}

#[test]
fn credentials_are_secrets_wherever_they_come_from() {
    let parameter =
        |name: &str, value: &str| format!("    {name}: {{ sourceType: value, source: '{value}' }}");
    let parameters = [
        ("accessKeyId", "AKIA-capyfile"),
        ("secretAccessKey", "/capyfile+secret"),
        ("sessionToken", "capyfile-token"),
        ("endpoint", "http://localhost:1"),
        ("region", "us-east-1"),
        ("bucket", "b"),
    ];
    let parameters = parameters.map(|(name, value)| parameter(name, value)).join("\n");
    converted(&operation(&format!("- name: s3_upload\n  params:\n{parameters}")));
    let text = "AKIA-capyfile /capyfile+secret capyfile-token us-east-1";
    assert_eq!(thalweg_redact::redacted(text), "… … … us-east-1");
}
