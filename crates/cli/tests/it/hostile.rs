//! Servers that redirect requests, repeat them in their answers, and send control characters.

use std::fs;
use std::io::Write;
use std::net::TcpListener;

use crate::common::{House, Said, said};
use crate::serving::{accept, reply};

/// Starts a server that replies to each request with what `answer` makes of it. Returns its address.
fn server(answer: impl Fn(&str) -> (u16, String) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        loop {
            let (stream, asked) = accept(&listener);
            let (status, body) = answer(&asked);
            reply(&stream, status, &body);
        }
    });
    address
}

/// A definition that uploads, with `rest` in its second operation.
fn service(operation: &str) -> String {
    format!(
        "version: '1.2'
name: s
processors:
  - name: p
    operations:
      - name: filesystem_input_read
        params: {{ target: {{ sourceType: value, source: 'in/*' }} }}
      - {operation}
"
    )
}

const UPLOAD: &str = "name: s3_upload
        params:
          accessKeyId: { sourceType: etcd, source: /key }
          secretAccessKey: { sourceType: etcd, source: /secret }
          endpoint: { sourceType: env_var, source: STORE }
          region: { sourceType: value, source: us-east-1 }
          bucket: { sourceType: value, source: b }";

/// Runs the definition with an etcd at this address. Another server is the store.
fn run(operation: &str, etcd: &str, store: &str) -> Said {
    let house = House::with(&[("s.yml", &service(operation))]);
    fs::create_dir(house.path().join("in")).unwrap();
    house.write("in/a", b"a");
    let mut command = house.command(&["run", "s.yml", "s:p"]);
    command
        .env("ETCD_ENDPOINTS", format!("[\"{etcd}\"]"))
        .env("ETCD_USERNAME", "user")
        .env("ETCD_PASSWORD", "PLANTED-password")
        .env("STORE", format!("http://{store}"));
    said(command.output().unwrap())
}

/// True if the errors contain a text, wherever their lines are broken.
fn names(said: &Said, text: &str) -> bool {
    let flat = |text: &str| text.split_whitespace().collect::<String>();
    flat(&said.err).contains(&flat(text))
}

/// Fails if the output has a secret or a control character.
fn search(said: &Said) {
    let text = format!("{}{}", said.out, said.err);
    assert!(!text.contains("PLANTED"), "{text}");
    assert!(!text.contains(|character: char| character.is_control() && character != '\n'), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("forged")), "{text}");
}

/// The end of the texts that servers repeat.
const FORGED: &str = "\u{1b}[31mred\u{7}\r\nforged: line";

#[test]
fn a_redirect_of_etcd_is_not_followed() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let elsewhere = other.local_addr().unwrap();
    let etcd = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = etcd.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        loop {
            let (mut stream, _) = accept(&etcd);
            let head =
                format!("HTTP/1.1 307 X\r\nLocation: http://{elsewhere}/\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
        }
    });
    let said = run(UPLOAD, &address, "127.0.0.1:1");
    assert!(said.code == Some(2) && names(&said, "the status 307"), "{}", said.err);
    other.set_nonblocking(true).unwrap();
    assert!(other.accept().is_err(), "the password was sent to another server");
}

#[test]
fn etcd_that_repeats_a_password_or_a_token_shows_neither() {
    let repeats =
        |asked: &str| (401, serde_json::json!({ "message": format!("{asked}{FORGED}") }).to_string());
    let said = run(UPLOAD, &server(repeats), "127.0.0.1:1");
    assert!(said.code == Some(2) && names(&said, "the status 401"), "{}", said.err);
    assert!(names(&said, r"\u{1b}[31mred\u{7}\r\nforged: line"), "{}", said.err);
    search(&said);
    let etcd = server(move |asked| match asked.contains("/v3/auth/") {
        true => (200, "{ \"token\": \"PLANTED.token\" }".to_owned()),
        false => repeats(asked),
    });
    let said = run(UPLOAD, &etcd, "127.0.0.1:1");
    assert!(said.code == Some(2) && names(&said, "the status 401"), "{}", said.err);
    search(&said);
}

/// Starts an etcd. `/key` has the value `PLANTED-key-id`, `/secret` has `/PLANTED+secret==`, and every other
/// key has `PLANTED-{{other}}`.
fn etcd() -> String {
    server(|asked| {
        let value = match asked {
            asked if asked.contains("/v3/auth/") => return (200, "{ \"token\": \"t\" }".to_owned()),
            asked if asked.contains("L2tleQ==") => "UExBTlRFRC1rZXktaWQ=",
            asked if asked.contains("L3NlY3JldA==") => "L1BMQU5URUQrc2VjcmV0PT0=",
            _ => "UExBTlRFRC17e290aGVyfX0=",
        };
        (200, format!("{{ \"kvs\": [{{ \"value\": \"{value}\" }}] }}"))
    })
}

#[test]
fn a_store_that_repeats_its_credentials_does_not_show_them() {
    let store = server(|asked| {
        // The server of a store knows the secret key, and every request has the id of the key.
        assert!(asked.contains("PLANTED-key-id"), "{asked}");
        let said = format!("key PLANTED-key-id /PLANTED+secret== {FORGED}");
        (403, format!("<Error><Code>SignatureDoesNotMatch</Code><Message>{said}</Message></Error>"))
    });
    let said = run(UPLOAD, &etcd(), &store);
    let text = format!("{}{}", said.out, said.err);
    assert!(text.contains("SignatureDoesNotMatch"), "{text}");
    search(&said);
}

#[test]
fn a_wrong_parameter_of_etcd_is_not_shown() {
    for (operation, message) in [
        (
            "name: image_convert\n        params: { toMimeType: { sourceType: etcd, source: /key } }",
            "The value of `toMimeType` is not a type that images can be converted to.",
        ),
        (
            "name: command_exec\n        params: { commandName: { sourceType: etcd, source: /other } }",
            "The value of `commandName` is not a template with variables only.",
        ),
    ] {
        let said = run(operation, &etcd(), "127.0.0.1:1");
        assert!(said.code == Some(2) && names(&said, message), "{}", said.err);
        search(&said);
    }
}

/// A message clears the screen, sets the title of the window, and turns a text round.
const OBEYED: &str = r#"{"a":"\u001b[2J\u001b]0;pwn\u0007\u202ex"}"#;

fn has_nothing_to_obey(text: &str) -> bool {
    !text.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{200b}', '\u{202e}'])
}

#[test]
fn no_message_controls_the_terminal_that_shows_why_it_was_rejected() {
    let config = "sources: { app: { file: { path: a.jsonl } }, raw: { file: { path: raw.txt } } }
pipelines:
  m: { from: app, transforms: [parse_json, { cast: { a: int } }], to: out }
  r: { from: raw, transforms: [parse_json], to: out }
sinks: { out: discard }
";
    let house =
        House::with(&[("a.jsonl", OBEYED), ("raw.txt", "\u{1b}]0;pwn\u{7}raw\n"), ("c.yaml", config)]);
    let said = house.run_with_input(&["pipe", "-p", "json", "cast a: int"], OBEYED.as_bytes());
    assert_eq!(said.code, Some(1));
    assert!(has_nothing_to_obey(&said.err) && said.err.contains(r"\u{1b}[2J"), "{said:?}");
    house.run_well(&["run", "-q", "c.yaml"]);
    for command in [&["errors", "list", "c.yaml"][..], &["errors", "show", "1", "c.yaml"]] {
        let said = house.run_well(command);
        assert!(has_nothing_to_obey(&said.out) && said.out.contains("pwn"), "{said:?}");
    }
    // Data stays as it is.
    let said = house.run_with_input(&["pipe"], b"\x1b[31mred\n");
    assert_eq!(said.out, "\u{1b}[31mred\n");
}

#[test]
fn no_configuration_controls_the_terminal_that_shows_its_mistakes() {
    let house = House::with(&[(
        "c.yaml",
        "sources: { \"a\\e[2J\": { file: { \"p\u{202e}ath\": a } } } # \u{1b}[31m\u{200b}\npipelines: { \"\u{9b}\": 1 }\n",
    )]);
    let said = house.run(&["check", "c.yaml"]);
    assert_eq!(said.code, Some(2));
    assert!(has_nothing_to_obey(&said.err), "{said:?}");
}

#[test]
fn a_secret_in_the_name_of_a_folder_is_not_shown() {
    let config = "state: \"none/${SECRET_FOLDER}\"\nsources: { a: { generate: { count: 1 } } }\npipelines: { m: { from: a, to: out } }\nsinks: { out: discard }\n";
    let house = House::with(&[("c.yaml", config)]);
    let mut command = house.command(&["errors", "list", "c.yaml"]);
    let said = said(command.env("SECRET_FOLDER", "PLANTED-folder").output().unwrap());
    assert!(said.out.contains("there are no dead letters") && !said.out.contains("PLANTED"), "{said:?}");
}
