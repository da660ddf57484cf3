//! `thalweg serve`, as clients of capyfile's server see it.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::House;
use crate::serving::{FORM, Server, accept, answer, answering, form, reply, request};

const SERVICE: &str = "\
version: '1.1'
name: photos
processors:
  - name: archive
    operations:
      - name: http_multipart_form_input_read
      - name: file_size_validate
        params:
          maxFileSize: { sourceType: value, source: 100000 }
      - name: filesystem_input_write
        params:
          destination: { sourceType: value, source: archive }
          useOriginalFilename: { sourceType: value, source: true }
  - name: raw
    operations:
      - name: http_octet_stream_input_read
      - name: filesystem_input_write
        params:
          destination: { sourceType: value, source: raw }
          useOriginalFilename: { sourceType: value, source: false }
  - name: limited
    operations:
      - name: http_multipart_form_input_read
      - name: file_size_validate
        params:
          minFileSize: { sourceType: http_get, source: least }
          maxFileSize: { sourceType: http_post, source: most }
      - name: file_type_validate
        params:
          allowedMimeTypes: { sourceType: http_header, source: X-Types }
  - name: folder
    operations:
      - name: filesystem_input_read
        params:
          target: { sourceType: value, source: 'in/*' }
      - name: filesystem_input_write
        params:
          destination: { sourceType: value, source: copies }
          useOriginalFilename: { sourceType: value, source: true }
";

fn house() -> House {
    House::with(&[("service.yml", SERVICE)])
}

/// Returns the number of temporary files that are left.
fn leftovers(house: &House) -> usize {
    let below = |path: std::path::PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    let runs = below(house.path().join("tmp")).flat_map(|root| below(root.path()));
    runs.flat_map(|run| below(run.path())).filter(|file| file.file_name() != "lock").count()
}

#[test]
fn a_form_with_several_files_is_answered_as_capyfile_answers() {
    let house = house();
    let server = Server::start(&house, &[]);
    let large = vec![b'x'; 100_001];
    let files: [(&str, &[u8]); 3] = [("a b.txt", b"one"), ("../../c.txt", b"three"), ("large.txt", &large)];
    let mut stream = server.connect();
    stream.write_all(&request(&format!("POST /photos/archive HTTP/1.1\r\n{FORM}"), &form(&files))).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    let answer_body: Value = serde_json::from_str(body).unwrap();
    let ids = [0, 1].map(|at| answer_body["files"][at]["filename"].as_str().unwrap().to_owned());
    assert!(ids.iter().all(|id| id.len() == 25 && id.ends_with(".txt")), "{ids:?}");
    let file = |id: &str, name: &str, size: usize| {
        format!(
            "{{\"url\":\"\",\"filename\":\"{id}\",\"originalFilename\":\"{name}\",\"mime\":\"text/plain; charset=utf-8\",\
             \"size\":{size},\"status\":\"SUCCESS\",\"code\":\"FILE_SUCCESSFULLY_UPLOADED\",\
             \"message\":\"file successfully uploaded\"}}"
        )
    };
    let expected = format!(
        "{{\"status\":\"PARTIAL\",\"code\":\"PARTIAL\",\"message\":\"successfully uploaded 2 of 3 files\",\
         \"files\":[{},{}],\
         \"errors\":[{{\"originalFilename\":\"large.txt\",\"status\":\"ERROR\",\"code\":\"FILE_SIZE_IS_TOO_BIG\",\
         \"message\":\"file size can not be greater than 98 KiB\"}}],\
         \"meta\":{{\"totalUploads\":3,\"successfulUploads\":2,\"failedUploads\":1}}}}\n",
        file(&ids[0], "a b.txt", 3),
        file(&ids[1], "c.txt", 5)
    );
    assert_eq!(body, expected);
    assert_eq!((house.read("archive/a b.txt"), house.read("archive/c.txt")), ("one".into(), "three".into()));
    assert!(!house.path().join("archive/large.txt").exists());
    assert_eq!(leftovers(&house), 0);
    let log = server.end();
    assert!(log.contains("/photos/archive") && log.contains("status=200"), "{log}");
}

#[test]
fn bodies_folders_and_parameters_of_requests_are_taken() {
    let house = house();
    std::fs::create_dir(house.path().join("in")).unwrap();
    house.write("in/one.txt", b"1");
    let server = Server::start(&house, &[]);
    let (status, answer_body) = server.ask("PUT /photos/raw HTTP/1.1\r\n", &vec![7; 200_000]);
    assert_eq!(
        (status, &answer_body["code"], &answer_body["files"][0]["size"]),
        (200, &json!("SUCCESS"), &json!(200_000))
    );
    let written: Vec<_> = std::fs::read_dir(house.path().join("raw")).unwrap().flatten().collect();
    assert_eq!((written.len(), written[0].metadata().unwrap().len()), (1, 200_000));
    let (status, answer_body) = server.ask("GET /photos/folder HTTP/1.1\r\n", b"");
    assert_eq!((status, &answer_body["files"][0]["originalFilename"]), (200, &json!("in/one.txt")));
    assert_eq!(house.read("copies/one.txt"), "1");
    let limited = |query: &str, types: &str, files: &[(&str, &[u8])]| {
        let types = if types.is_empty() { String::new() } else { format!("X-Types: {types}\r\n") };
        server.ask(&format!("POST /photos/limited{query} HTTP/1.1\r\n{types}{FORM}"), &form(files))
    };
    let text: (&str, &[u8]) = ("a.txt", b"text");
    let (status, answer_body) = limited("?least=1", "[\"text/plain\"]", &[("field:most", b"4"), text]);
    assert_eq!((status, &answer_body["code"]), (200, &json!("SUCCESS")), "{answer_body}");
    let (status, answer_body) = limited("?least=5", "[\"text/plain\"]", &[("field:most", b"9"), text]);
    assert_eq!((status, &answer_body["status"], &answer_body["files"]), (200, &json!("ERROR"), &Value::Null));
    assert_eq!(answer_body["errors"][0]["message"], "file size can not be less than 5 B");
    let (_, answer_body) = limited("?least=1", "[\"image/png\"]", &[("field:most", b"9"), text]);
    assert_eq!(answer_body["errors"][0]["code"], "FILE_MIME_TYPE_IS_NOT_ALLOWED");
    // A missing or malformed parameter is the client's mistake.
    for (query, types, most) in [
        ("", "[\"text/plain\"]", "4"),
        ("?least=x", "[\"text/plain\"]", "4"),
        ("?least=1", "", "4"),
        ("?least=1", "[\"text/plain\"]", ""),
    ] {
        let (status, answer_body) = limited(query, types, &[("field:most", most.as_bytes()), text]);
        assert_eq!((status, &answer_body["code"]), (400, &json!("INVALID_REQUEST")), "{answer_body}");
    }
    let (status, answer_body) = server.upload("/photos/archive", &[]);
    assert_eq!((status, &answer_body["code"]), (200, &json!("NO_FILES_PROVIDED")));
    server.end();
}

#[test]
fn wrong_requests_are_rejected_and_nothing_of_them_is_kept() {
    let house = house();
    let options = ["--max-file-bytes", "80KiB", "--max-request-bytes", "200KiB", "--max-files", "3"];
    let server = Server::start(&house, &options);
    for (path, code) in [
        ("/", "NOT_FOUND"),
        ("/photos", "NOT_FOUND"),
        ("/photos/archive/", "NOT_FOUND"),
        ("/health", "NOT_FOUND"),
        ("/other/archive", "SERVICE_NOT_FOUND"),
        ("/photos/other", "PROCESSOR_NOT_FOUND"),
    ] {
        let (status, answer_body) = server.upload(path, &[("a", b"x")]);
        assert_eq!((status, &answer_body["code"]), (404, &json!(code)), "{path}");
    }
    let large = vec![b'x'; 81 << 10];
    let half = &large[..70 << 10];
    let small: &[u8] = b"";
    for (files, limit) in [
        (vec![("a", half), ("b", &large[..])], "max_file_bytes"),
        (vec![("a", half), ("b", half), ("c", half)], "max_request_bytes"),
        (vec![("a", small), ("b", small), ("c", small), ("d", small)], "max_files"),
    ] {
        let (status, answer_body) = server.upload("/photos/archive", &files);
        assert_eq!((status, &answer_body["code"]), (413, &json!("REQUEST_TOO_LARGE")), "{answer_body}");
        assert!(answer_body["message"].as_str().unwrap().contains(limit), "{answer_body}");
    }
    let (status, answer_body) = server.ask("POST /photos/archive HTTP/1.1\r\n", b"no form");
    assert_eq!((status, &answer_body["code"]), (400, &json!("INVALID_REQUEST")));
    // A form without its end; and a connection that is closed before the form is complete.
    let whole = form(&[("one.txt", half), ("two.txt", b"x")]);
    let cut = &whole[..whole.len() - 30];
    let head = format!("POST /photos/archive HTTP/1.1\r\n{FORM}");
    assert_eq!(server.ask(&head, cut).0, 400);
    let mut gone = server.connect();
    let text = request(&head, &whole);
    gone.write_all(&text[..text.len() - 30]).unwrap();
    gone.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    let _ = gone.read_to_end(&mut rest);
    assert!(!house.path().join("archive").exists());
    assert_eq!(leftovers(&house), 0);
    server.end();
}

#[test]
fn two_hundred_uploads_of_eight_clients_each_get_their_own_answer() {
    let house = house();
    let server = Server::start(&house, &[]);
    std::thread::scope(|scope| {
        for client in 0..8 {
            let server = &server;
            scope.spawn(move || {
                for round in 0..25 {
                    let number = client * 25 + round;
                    // Small bodies stay in memory, large ones go to temporary files.
                    let body = vec![b'a'; number * 400 + 1];
                    let (status, answer_body) =
                        server.upload("/photos/archive", &[(&format!("{number}.txt"), &body)]);
                    let files: Vec<_> = answer_body["files"].as_array().unwrap().iter().collect();
                    let found: Vec<_> =
                        files.iter().map(|file| (&file["originalFilename"], &file["size"])).collect();
                    assert_eq!(status, 200, "{answer_body}");
                    assert_eq!(found, [(&json!(format!("{number}.txt")), &json!(body.len()))]);
                }
            });
        }
    });
    let written = std::fs::read_dir(house.path().join("archive")).unwrap().flatten();
    let written: BTreeSet<_> =
        written.map(|file| (file.file_name(), file.metadata().unwrap().len())).collect();
    let expected = (0..200).map(|number| (format!("{number}.txt").into(), number * 400 + 1)).collect();
    assert_eq!(written, expected);
    assert_eq!(leftovers(&house), 0);
    server.end();
}

#[test]
fn a_server_that_is_told_to_end_answers_what_is_under_way_first() {
    let house = house();
    let mut server = Server::start(&house, &[]);
    let body = form(&[("late.txt", b"it arrived")]);
    let head = format!("POST /photos/archive HTTP/1.1\r\nExpect: 100-continue\r\n{FORM}");
    let text = request(&head, &body);
    let (first, second) = text.split_at(text.len() - body.len() + 10);
    let mut stream = server.connect();
    stream.write_all(first).unwrap();
    let mut begun = [0; 25];
    stream.read_exact(&mut begun).unwrap();
    assert!(begun.starts_with(b"HTTP/1.1 100 "), "{begun:?}");
    server.terminate();
    server.wait_for("stopping:");
    stream.write_all(second).unwrap();
    let (status, answer_body) = answer(&mut stream);
    assert_eq!((status, &answer_body["code"]), (200, &json!("SUCCESS")));
    assert_eq!(house.read("archive/late.txt"), "it arrived");
    let mut log = String::new();
    server.log.read_to_string(&mut log).unwrap();
    assert!(server.child.wait().unwrap().success(), "{log}");
    assert!(TcpStream::connect(&server.address).is_err());
}

#[test]
fn a_request_that_takes_longer_than_the_drain_timeout_is_dropped() {
    let house = house();
    let mut command = house.command(&["serve", "service.yml", "--listen", "127.0.0.1:0"]);
    let mut server = Server::of(command.env("SERVER_SHUTDOWN_TIMEOUT", "0"));
    let mut stream = server.connect();
    let head = format!("POST /photos/archive HTTP/1.1\r\nExpect: 100-continue\r\n{FORM}");
    stream.write_all(&request(&head, &form(&[("a", b"x")]))[..200]).unwrap();
    let mut begun = [0; 25];
    stream.read_exact(&mut begun).unwrap();
    server.terminate();
    assert_eq!(server.child.wait().unwrap().code(), Some(3));
    assert!(!house.path().join("archive").exists());
}

#[test]
fn the_health_check_and_the_environment_are_capyfiles() {
    let house = house();
    let mut command = house.command(&[
        "serve",
        "-c",
        "-m",
        "lock",
        "--health-check",
        "--health-check-verbosity",
        "2",
        "--json",
    ]);
    let command = command
        .env("CAPYFILE_SERVICE_DEFINITION_FILE", "service.yml")
        .env("SERVER_ADDR", "127.0.0.1:0")
        .env("SERVER_SHUTDOWN_TIMEOUT", "20");
    let server = Server::of(command);
    let (status, answer_body) = server.ask("GET /health HTTP/1.1\r\n", b"");
    assert_eq!(
        (status, &answer_body["status"], &answer_body["name"]),
        (200, &json!("OK"), &json!("thalweg"))
    );
    assert!(
        answer_body["system"]["totalAllocBytes"].is_u64() && answer_body["timestamp"].is_string(),
        "{answer_body}"
    );
    assert_eq!(server.upload("/photos/archive", &[("a", b"x")]).0, 200);
    let log = server.end();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["event"].is_string(), "{line}");
    }
    assert!(log.contains("\"status\":\"200\"") || log.contains("\"status\":200"), "{log}");
}

#[test]
fn mistakes_that_prevent_serving_are_reported_at_the_start() {
    let house = house();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = house.run(&["serve", "service.yml", "--listen", &address]);
    assert!(said.code == Some(3) && said.err.contains(&address), "{said:?}");
    house.write("bad.yml", SERVICE.replace("maxFileSize", "maxFileSise").as_bytes());
    let said = house.run(&["serve", "-f", "bad.yml"]);
    assert!(said.code == Some(2) && said.err.contains("maxFileSise"), "{said:?}");
    house.write("ours.yml", b"pipelines: {}\n");
    let said = house.run(&["serve", "ours.yml"]);
    assert!(said.code == Some(2) && said.err.contains("not a service definition"), "{said:?}");
    let said = house.run(&["serve"]);
    assert!(said.code == Some(2) && said.err.contains("CAPYFILE_SERVICE_DEFINITION_URL"), "{said:?}");
    let said = house.run(&["serve", "service.yml", "-m", "other"]);
    assert!(said.code == Some(2) && said.err.contains("event"), "{said:?}");
}

/// A definition whose folder is in etcd.
const OF_ETCD: &str = "{ \"name\": \"s\", \"processors\": [{ \"name\": \"p\", \"operations\": [\
        { \"name\": \"http_octet_stream_input_read\" },\
        { \"name\": \"filesystem_input_write\", \"params\": {\
            \"destination\": { \"sourceType\": \"etcd\", \"source\": \"/a/b\" },\
            \"useOriginalFilename\": { \"sourceType\": \"value\", \"source\": true } } }] }] }";

/// The answer of etcd: `b3V0` is `out`.
const FOLDER: &str = "{ \"kvs\": [{ \"key\": \"L2EvYg==\", \"value\": \"b3V0\" }], \"count\": \"1\" }";

#[test]
fn a_server_that_ends_waits_for_a_request_that_reads_its_parameters_although_its_client_is_gone() {
    let house = House::with(&[("service.yml", OF_ETCD)]);
    let etcd = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoints = format!("[\"{}\"]", etcd.local_addr().unwrap());
    let at_the_start = std::thread::spawn(move || {
        let (stream, _) = accept(&etcd);
        reply(&stream, 200, FOLDER);
        etcd
    });
    let mut command = house.command(&["serve", "service.yml", "--listen", "127.0.0.1:0"]);
    let mut server = Server::of(command.env("ETCD_ENDPOINTS", endpoints));
    let etcd = at_the_start.join().unwrap();
    let mut client = server.connect();
    let head = "POST /s/p HTTP/1.1\r\nContent-Disposition: attachment; filename=a.txt\r\n";
    client.write_all(&request(head, b"text")).unwrap();
    let (question, _) = accept(&etcd);
    drop(client);
    server.terminate();
    server.wait_for("stopping:");
    // The connection of the client ends meanwhile.
    std::thread::sleep(Duration::from_millis(500));
    reply(&question, 200, FOLDER);
    let mut log = String::new();
    server.log.read_to_string(&mut log).unwrap();
    assert!(server.child.wait().unwrap().success(), "{log}");
    assert_eq!(house.read("out/a.txt"), "text");
}

#[test]
fn definitions_come_from_addresses_and_parameters_from_etcd() {
    let house = House::with(&[]);
    let (address, asked) = answering(vec![(404, SERVICE.to_owned())]);
    let mut command = house.command(&["serve"]);
    command.env(
        "CAPYFILE_SERVICE_DEFINITION_URL",
        format!("http://me:secret@{address}/service.json?token=hidden"),
    );
    let said = crate::common::said(command.output().unwrap());
    assert!(said.code == Some(3) && said.err.contains("404"), "{said:?}");
    assert!(said.err.contains("/service.json?…") && !said.err.contains("secret"), "{said:?}");
    assert!(!said.err.contains("hidden"), "{said:?}");
    asked.join().unwrap();

    let (definition, _) = answering(vec![(200, OF_ETCD.to_owned())]);
    // The value is read once at the start, and once for the request.
    let token = "{ \"token\": \"a-token\" }";
    let answers = [token, FOLDER, token, FOLDER].map(|answer| (200, answer.to_owned()));
    let (endpoint, asked) = answering(answers.to_vec());
    let mut command = house.command(&["serve", "--listen", "127.0.0.1:0"]);
    let command = command
        .env("CAPYFILE_SERVICE_DEFINITION_URL", format!("http://{definition}/service.json"))
        .env("ETCD_ENDPOINTS", format!("[\"{endpoint}\"]"))
        .env("ETCD_USERNAME", "me")
        .env("ETCD_PASSWORD", "secret");
    let server = Server::of(command);
    let head = "POST /s/p HTTP/1.1\r\nContent-Disposition: attachment; filename=a.txt\r\n";
    let (status, answer_body) = server.ask(head, b"text");
    assert_eq!((status, &answer_body["code"]), (200, &json!("SUCCESS")), "{answer_body}");
    assert_eq!(house.read("out/a.txt"), "text");
    let asked = asked.join().unwrap();
    assert!(asked[0].starts_with("POST /v3/auth/authenticate ") && asked[0].contains("secret"), "{asked:?}");
    assert!(asked[1].starts_with("POST /v3/kv/range ") && asked[1].contains("L2EvYg=="), "{asked:?}");
    assert!(asked[1].contains("a-token"), "{asked:?}");
    server.end();
}

/// Sends the standard input over TLS to the port, trusts the certificate, and prints the answer.
const TLS_CLIENT: &str = "
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[2])
with socket.create_connection(('127.0.0.1', int(sys.argv[1])), 60) as plain:
    with context.wrap_socket(plain, server_hostname='localhost') as stream:
        stream.sendall(sys.stdin.buffer.read())
        while data := stream.recv(65536):
            sys.stdout.buffer.write(data)
";

#[test]
fn a_server_with_a_certificate_and_a_key_is_reached_over_tls() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let house = House::with(&[("service.yml", SERVICE), ("cert.pem", &certificate), ("key.pem", &key)]);
    let mut command = house.command(&["serve", "service.yml", "--listen", "127.0.0.1:0"]);
    command.env("SERVER_CERT_FILE", "cert.pem").env("SERVER_KEY_FILE", "key.pem");
    let server = Server::of(&mut command);
    let (_, port) = server.address.rsplit_once(':').unwrap();
    let mut client = Command::new("python3")
        .args(["-c", TLS_CLIENT, port, "cert.pem"])
        .current_dir(house.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let upload = request(&format!("POST /photos/archive HTTP/1.1\r\n{FORM}"), &form(&[("a.txt", b"secret")]));
    client.stdin.take().unwrap().write_all(&upload).unwrap();
    let answered = client.wait_with_output().unwrap();
    assert!(answered.status.success());
    let (status, said) = answer(&mut &answered.stdout[..]);
    assert_eq!(status, 200, "{said}");
    assert_eq!(house.read("archive/a.txt"), "secret");
    // Without TLS there is no answer.
    let mut plain = server.connect();
    let _ = plain.write_all(&upload);
    let mut text = Vec::new();
    let _ = plain.read_to_end(&mut text);
    assert!(!text.starts_with(b"HTTP/"), "{}", String::from_utf8_lossy(&text));
    server.end();
}
