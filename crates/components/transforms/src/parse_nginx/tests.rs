use super::*;
use arrow_array::cast::AsArray;
use proptest::prelude::*;
use serde_json::json;
use thalweg_engine::{Output, testing};

use crate::testing::no_line_is_lost;

const LINE: &str = r#"203.0.113.7 - ann lee [25/Nov/2026:08:14:02 +0000] "GET /a?b=\x22c\x22 HTTP/1.1" 200 5316 "-" "Mozilla/5.0 (X11; rv:140.0)""#;

fn parsed(yaml: &str, lines: &[&str]) -> testing::Given {
    testing::apply::<ParseNginx>(yaml, [testing::batch(lines)])
}

#[test]
fn it_conforms() {
    testing::transform_conforms::<ParseNginx>("{}", &[LINE, "", "x", LINE]);
    testing::transform_conforms::<ParseNginx>(
        "format: error",
        &["", "x", "2026/11/25 08:14:02 [error] 7#7: x"],
    );
}

#[test]
fn the_combined_format_becomes_typed_fields() {
    let handshake = r#"192.0.2.99 - - [25/Nov/2026:08:14:09 +0000] "\x16\x03\x01" 400 157 "-" "-""#;
    let given = parsed("{}", &[LINE, handshake]);
    assert_eq!(
        given.main(),
        [
            json!({"remote_addr": "203.0.113.7", "remote_user": "ann lee", "time": 1_795_594_442_000_000_i64,
                "request": "GET /a?b=\"c\" HTTP/1.1", "request_method": "GET", "request_uri": "/a?b=\"c\"",
                "server_protocol": "HTTP/1.1", "status": 200, "body_bytes_sent": 5316,
                "http_user_agent": "Mozilla/5.0 (X11; rv:140.0)"}),
            json!({"remote_addr": "192.0.2.99", "time": 1_795_594_449_000_000_i64, "request": "\u{16}\u{3}\u{1}",
                "status": 400, "body_bytes_sent": 157}),
        ]
    );
}

#[test]
fn text_without_escapes_is_not_copied() {
    let batch = testing::batch([LINE]);
    let payload = batch.payload().value(0).as_ptr() as usize;
    let given = testing::apply::<ParseNginx>("{}", [batch]);
    let fields = given.outputs[&Output::Main][0].fields().clone();
    let agent = fields.column_by_name("http_user_agent").unwrap().as_string_view().value(0).as_ptr() as usize;
    assert_eq!(agent - payload, LINE.find("Mozilla").unwrap());
}

#[test]
fn the_ingress_format_has_the_last_of_several_upstreams() {
    let head = r#"10.0.0.1 - - [25/Nov/2026:08:14:02 +0000] "GET / HTTP/2.0" 200 5 "-" "curl/8" 431 0.027 [default-web-80] []"#;
    let one = format!("{head} 10.2.0.7:8080 5 0.026 200 f0e1");
    let two = format!(
        "{head} 10.2.0.7:8080, 10.2.0.8:8080 : [::1]:80 0, 3 : 5 0.001, 0.002 : 0.020 502, 504 : 200 f0e2"
    );
    let none = format!("{head} - - - - f0e3");
    let given = parsed("format: ingress", &[&one, &two, &none]);
    let upstreams: Vec<_> = given
        .main()
        .iter()
        .map(|row| {
            [
                "upstream_addr",
                "upstream_response_length",
                "upstream_response_time",
                "upstream_status",
                "req_id",
            ]
            .map(|name| row[name].clone())
        })
        .collect();
    assert_eq!(
        json!(upstreams),
        json!([
            ["10.2.0.7:8080", 5, 0.026, 200, "f0e1"],
            ["10.2.0.7:8080, 10.2.0.8:8080 : [::1]:80", 5, 0.02, 200, "f0e2"],
            [null, null, null, null, "f0e3"],
        ])
    );
    let row = &given.main()[0];
    assert_eq!((&row["request_length"], &row["request_time"]), (&json!(431), &json!(0.027)));
    assert_eq!(
        (&row["proxy_upstream_name"], &row["server_protocol"]),
        (&json!("default-web-80"), &json!("HTTP/2.0"))
    );
    let given = parsed("{ format: ingress, types: { upstream_status: text } }", &[&two]);
    assert_eq!(given.main()[0]["upstream_status"], "502, 504 : 200");
}

#[test]
fn a_directive_may_be_given_as_it_is_in_the_configuration() {
    let line = "2026-11-25T08:14:02+01:00|x|GET|404|$|1.5";
    let expected = json!({"time": 1_795_590_842_000_000_i64, "host": "x", "request_method": "GET", "status": 404,
        "request_time": 1.5});
    for format in [
        "$time_iso8601|$host|$request_method|$status|$|$request_time",
        "'$time_iso8601|$host|' '$request_method|${status}|$|$request_time'",
        "log_format short '$time_iso8601|$host|'\n    \"$request_method|$status|$|$request_time\";",
        "log_format short escape=json '$time_iso8601|$host|$request_method|$status|$|$request_time';",
    ] {
        let yaml = json!({ "format": format }).to_string();
        assert_eq!(parsed(&yaml, &[line]).main(), std::slice::from_ref(&expected), "{format}");
    }
}

#[test]
fn times_have_one_name_and_repeated_variables_are_numbered() {
    let given = parsed(
        "format: '$time_local $msec $status $status $request_method \"$request\"'",
        &["25/Nov/2026:08:14:02 +0000 1795594442.5 1 2 PUT \"GET / HTTP/1.0\""],
    );
    assert_eq!(
        given.main(),
        [
            json!({"time": 1_795_594_442_000_000_i64, "time_2": 1_795_594_442_500_000_i64, "status": 1, "status_2": 2,
            "request_method": "PUT", "request": "GET / HTTP/1.0", "request_uri": "/", "server_protocol": "HTTP/1.0"})
        ]
    );
}

#[test]
fn a_header_may_have_the_addresses_of_several_clients() {
    let given = parsed(
        "format: '$remote_addr $http_x_forwarded_for $status'",
        &["10.0.0.1 1.2.3.4, 5.6.7.8 200", "10.0.0.1 - 200"],
    );
    assert_eq!(
        given.main(),
        [
            json!({"remote_addr": "10.0.0.1", "http_x_forwarded_for": "1.2.3.4, 5.6.7.8", "status": 200}),
            json!({"remote_addr": "10.0.0.1", "status": 200}),
        ]
    );
}

/// Each variable tried all numbers of those before it.
#[test]
fn a_format_of_many_equal_variables_is_read_in_linear_time() {
    let format = "$status ".repeat(50_000);
    let format = format::read(&format).unwrap();
    assert_eq!(format.fields().last().unwrap().0, "status_50000");
}

#[test]
fn what_is_not_of_this_format_says_where() {
    let given = parsed(
        "format: '<$status> \"$request\" [$host]'",
        &[
            "",
            "<1",
            "<1> GET",
            "<1> \"a\\\"b\" [c",
            "<1> \"a\"b\" [c]",
            "<1> \"a\" [c] d",
            "<z> \"a\" [c]",
            "<1> \"\" [c]\r",
        ],
    );
    assert_eq!(
        given.reasons(),
        [
            "does not begin with `<`",
            "`> \"` does not follow the field `status`, which begins at byte 1",
            "`> \"` does not follow the field `status`, which begins at byte 1",
            "`]` does not follow the field `host`, which begins at byte 12",
            "`\" [` does not follow the field `request`, which begins at byte 5",
            "the format ends before byte 11, but the line does not",
            "the field `status` is not a whole number of 64 bits: `z`",
        ]
    );
    assert_eq!(given.main(), [json!({"status": 1, "request": "", "host": "c"})]);
}

#[test]
fn lines_of_the_log_of_errors_have_their_context() {
    let given = parsed(
        "format: error",
        &[
            r#"2026/11/25 08:14:02 [error] 1234#5678: *91 open() "/srv/x" failed (2: No such file or directory), client: 203.0.113.7, server: shop.example, request: "GET /x"y HTTP/1.1", upstream: "http://10.0.0.1:80/x", host: "shop.example", referrer: "https://shop.example/""#,
            "2026/11/25 08:14:03 [notice] 1#1: signal process started",
            "2026/11/25 08:14:03 [error] 1#1: *2 *3",
        ],
    );
    assert_eq!(
        given.main(),
        [
            json!({"time": 1_795_594_442_000_000_i64, "level": "error", "pid": 1234, "tid": 5678, "connection": 91,
                "message": "open() \"/srv/x\" failed (2: No such file or directory)", "client": "203.0.113.7",
                "server": "shop.example", "request": "GET /x\"y HTTP/1.1", "upstream": "http://10.0.0.1:80/x",
                "host": "shop.example", "referrer": "https://shop.example/"}),
            json!({"time": 1_795_594_443_000_000_i64, "level": "notice", "pid": 1, "tid": 1,
                "message": "signal process started"}),
            json!({"time": 1_795_594_443_000_000_i64, "level": "error", "pid": 1, "tid": 1, "connection": 2,
                "message": "*3"}),
        ]
    );
    let given = parsed(
        "format: error",
        &["", "2026/11/25 08:14:02 [error] x#1: y", "2026/11-25 08:14:02 [x] 1#1: y"],
    );
    let form = "does not begin with a time, `[level]` and `pid#tid: `";
    assert_eq!(given.reasons(), [form, form, "the field `time` is not a time: `2026/11-25 08:14:02`"]);
}

#[test]
fn lines_of_streams_and_mail_servers_have_their_own_context() {
    let given = parsed(
        "format: error",
        &[
            r#"2026/11/25 08:14:02 [error] 6#6: *3 connect() failed (111: Connection refused), client: 10.30.100.61, server: 0.0.0.0:6443, upstream: "10.30.100.52:6443", bytes from/to client:1/2, bytes from/to upstream:3/4"#,
            r#"2026/11/25 08:14:02 [alert] 2#2: *8 socket() failed, udp client: 1.2.3.4, server: 0.0.0.0:53, upstream: "172.18.0.3:53""#,
            "2026/11/25 08:14:02 [info] 2#2: *8 client disconnected, bytes from/to client:78/0, bytes from/to upstream:0/78",
            r#"2026/11/25 08:14:02 [info] 1#0: *1 client login failed: "x", client: ::1 using starttls, server: 0.0.0.0:110, login: "bob", upstream: 10.0.0.1:143"#,
        ],
    );
    let expected = [
        json!({"connection": 3, "message": "connect() failed (111: Connection refused)", "client": "10.30.100.61",
            "server": "0.0.0.0:6443", "upstream": "10.30.100.52:6443", "bytes_from_client": 1,
            "bytes_to_client": 2, "bytes_from_upstream": 3, "bytes_to_upstream": 4}),
        json!({"connection": 8, "message": "socket() failed", "client": "1.2.3.4", "server": "0.0.0.0:53",
            "upstream": "172.18.0.3:53"}),
        json!({"connection": 8, "message": "client disconnected", "bytes_from_client": 78, "bytes_to_client": 0,
            "bytes_from_upstream": 0, "bytes_to_upstream": 78}),
        json!({"connection": 1, "message": "client login failed: \"x\"", "client": "::1",
            "server": "0.0.0.0:110", "login": "bob", "upstream": "10.0.0.1:143"}),
    ];
    let mut rows = given.main();
    for row in rows.iter_mut().filter_map(|row| row.as_object_mut()) {
        row.retain(|name, _| !["time", "level", "pid", "tid"].contains(&name.as_str()));
    }
    assert_eq!(rows, expected);
}

#[test]
fn a_request_cannot_forge_its_client() {
    let head = "2026/11/25 08:14:02 [error] 6#6: *3 open() ";
    let tail = r#", client: 10.0.0.1, server: shop, request: "GET /x HTTP/1.1", host: "shop""#;
    let forged = ", client: 6.6.6.6, server: evil";
    let lines = [
        format!("{head}\"/x{forged}\" failed{tail}"),
        format!("{head}\"/x\" failed{tail}, referrer: \"y{forged}\""),
        format!("{head}\"/x\" failed, client: 10.0.0.1, server: , request: \"GET /{}", "x".repeat(40)),
        format!("{head}\"/x{forged}, referrer: \"\" failed{tail}"),
        format!("{head}\"/x\" failed{tail}, referrer: \"y{forged}, host: \"z\""),
    ];
    let given = testing::apply::<ParseNginx>("format: error", [testing::batch(&lines)]);
    let found: Vec<_> = given
        .main()
        .into_iter()
        .map(|row| ["message", "client", "server", "referrer"].map(|name| row[name].clone()))
        .collect();
    let inner = format!("open() \"/x{forged}\" failed");
    assert_eq!(
        json!(found),
        json!([
            [inner, "10.0.0.1", "shop", null],
            ["open() \"/x\" failed", "10.0.0.1", "shop", format!("y{forged}")],
            ["open() \"/x\" failed", "10.0.0.1", "", null],
        ])
    );
    let reason = "`client` is named twice, and the line does not tell which is a part of the message or of another value";
    assert_eq!(given.reasons(), [reason, reason]);
}

#[test]
fn mistakes_name_the_option() {
    let mistake = |yaml: &str| testing::messages(testing::options::<ParseNginx>(yaml).check()).join("\n");
    assert_eq!(
        mistake("format: combine"),
        "`combine` is not a format of nginx. It is `combined`, `main`, `ingress`, `error`, or a text with variables, such as `$remote_addr`."
    );
    assert_eq!(
        mistake("format: $a$b"),
        "Nothing stands between `a` and `b`, so no line tells where the one ends."
    );
    assert_eq!(mistake("format: a$"), "The format has no variable, so it makes no field.");
    let unknown = "`size` is given a type, but there is no field of that name.";
    assert_eq!(mistake("types: { size: int }"), unknown);
    assert_eq!(mistake("{ format: error, types: { size: int } }"), unknown);
    assert_eq!(mistake("types: { request_uri: text }"), "");
}

proptest! {
    #[test]
    fn what_nginx_writes_is_read_back(
        user in "[a-z]{1,8}( [a-z]{1,8})?", path in "/[ -~é\n]{0,20}", status in 100..600_i64, agent in "[ -~é]{1,20}",
    ) {
        prop_assume!(!path.contains(" HTTP/") && agent != "-");
        let escaped = |text: &str| -> String {
            let byte = |byte: u8| match byte {
                b'"' | b'\\' | 0..32 | 127.. => format!("\\x{byte:02X}"),
                _ => char::from(byte).to_string(),
            };
            text.bytes().map(byte).collect()
        };
        let line = format!(
            "::1 - {user} [01/Jan/1970:00:00:01 +0000] \"GET {} HTTP/1.1\" {status} 0 \"-\" \"{}\"",
            escaped(&path), escaped(&agent),
        );
        let given = parsed("{}", &[&line]);
        prop_assert_eq!(given.main(), [json!({
            "remote_addr": "::1", "remote_user": user, "time": 1_000_000, "request": format!("GET {path} HTTP/1.1"),
            "request_method": "GET", "request_uri": path, "server_protocol": "HTTP/1.1", "status": status,
            "body_bytes_sent": 0, "http_user_agent": agent,
        })]);
    }

    #[test]
    fn every_line_leaves(lines in prop::collection::vec("[0-9\" \\[\\]\\\\x:#,-]{0,30}", 1..20)) {
        no_line_is_lost::<ParseNginx>("format: '$status [$upstream_addr] \"$request\"'", &lines)?;
        no_line_is_lost::<ParseNginx>("format: error", &lines)?;
    }

    #[test]
    fn every_line_of_an_error_leaves(
        lines in prop::collection::vec("(, |client: |server: |login: |upstream: |host: |[a, \"]){0,9}", 1..20),
    ) {
        let lines: Vec<String> =
            lines.into_iter().map(|line| format!("2026/11/25 08:14:02 [error] 1#1: x{line}")).collect();
        no_line_is_lost::<ParseNginx>("format: error", &lines)?;
    }
}
