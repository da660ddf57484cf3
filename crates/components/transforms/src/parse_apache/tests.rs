use super::*;
use proptest::prelude::*;
use serde_json::json;
use thalweg_engine::testing;

use crate::testing::no_line_is_lost;

const COMMON: &str =
    r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326"#;

fn parsed(yaml: &str, lines: &[&str]) -> testing::Given {
    testing::apply::<ParseApache>(yaml, [testing::batch(lines)])
}

#[test]
fn it_conforms() {
    testing::transform_conforms::<ParseApache>("format: common", &[COMMON, "", "x", COMMON]);
    testing::transform_conforms::<ParseApache>("format: error", &["", "x", "[Tue Oct 10 20:55:36 2000] x"]);
}

#[test]
fn formats_with_a_name() {
    let common = json!({"remote_addr": "127.0.0.1", "remote_user": "frank", "time": 971_211_336_000_000_i64,
        "request": "GET /apache_pb.gif HTTP/1.0", "request_method": "GET", "request_uri": "/apache_pb.gif",
        "server_protocol": "HTTP/1.0", "status": 200, "body_bytes_sent": 2326});
    assert_eq!(parsed("format: common", &[COMMON]).main(), std::slice::from_ref(&common));
    let combined = format!(r#"{COMMON} "http://www.example.com/start.html" "a \"b\" \\ \xc3\xa9""#);
    let mut expected = common;
    expected["http_referer"] = json!("http://www.example.com/start.html");
    expected["http_user_agent"] = json!("a \"b\" \\ é");
    assert_eq!(parsed("{}", &[&combined]).main(), [expected]);
    let row = parsed("format: vhost_combined", &[&format!("shop.example:443 {combined}")]).main()[0].clone();
    assert_eq!(
        (&row["server_name"], &row["server_port"], &row["bytes_sent"]),
        (&json!("shop.example"), &json!(443), &json!(2326))
    );
}

#[test]
fn a_directive_may_be_given_as_it_is_in_the_configuration() {
    for format in [
        r#"%h %a %t %{X-Id}i %{Content-Length}o %{sid}C %D %{ms}T %{HOME}e %400,501{Via}i 100%%"#,
        r#"LogFormat "%h %a %t %{X-Id}i %{Content-Length}o %{sid}C %D %{ms}T %{HOME}e %!200{Via}i 100%%" short"#,
    ] {
        let yaml = json!({ "format": format }).to_string();
        let line = "a.example ::1 [01/Jan/1970:00:00:01 +0000] 7 12 s 1500 1 - - 100%";
        assert_eq!(
            parsed(&yaml, &[line]).main(),
            [json!({"remote_addr": "a.example", "remote_addr_2": "::1", "time": 1_000_000, "http_x_id": "7",
                "sent_http_content_length": 12, "cookie_sid": "s", "request_time_us": 1500, "request_time_ms": 1})],
            "{format}"
        );
    }
    let yaml = r#"format: 'LogFormat "%{%d/%b/%Y %T}t.%{msec_frac}t \"%r\" %>s" x'"#;
    let given = parsed(yaml, &["10/Oct/2000 13:55:36.123 \"GET /\" 200"]);
    assert_eq!(
        given.main(),
        [
            json!({"time": "10/Oct/2000 13:55:36", "time_2": "123", "request": "GET /", "request_method": "GET",
            "request_uri": "/", "status": 200})
        ]
    );
}

#[test]
fn a_query_may_follow_its_path_directly() {
    let line = "1.1.1.1 GET /a?b=?c HTTP/1.1 200";
    let given =
        parsed("format: '%h %m %U%q %H %>s'", &[line, "1.1.1.1 GET /a HTTP/1.1 200", "1.1.1.1 GET /a"]);
    let paths: Vec<_> =
        given.main().iter().map(|row| (row["uri"].clone(), row["query_string"].clone())).collect();
    assert_eq!(paths, [(json!("/a"), json!("?b=?c")), (json!("/a"), json!(""))]);
    assert_eq!(given.reasons(), ["` ` does not follow the field `uri`, which begins at byte 12"]);
    let given = parsed("format: '\"%U%q\"'", &["\"/a b?c\"", "\"/\""]);
    let paths: Vec<_> =
        given.main().iter().map(|row| (row["uri"].clone(), row["query_string"].clone())).collect();
    assert_eq!(paths, [(json!("/a b"), json!("?c")), (json!("/"), json!(""))]);
    let given = parsed("format: '%U%q'", &["/a?c"]);
    assert_eq!(given.main(), [json!({"uri": "/a", "query_string": "?c"})]);
}

#[test]
fn a_header_may_have_the_addresses_of_several_clients() {
    let given = parsed("format: '%h %{X-Forwarded-For}i %s'", &["10.0.0.1 1.2.3.4, 5.6.7.8 200"]);
    let expected =
        json!({"remote_addr": "10.0.0.1", "http_x_forwarded_for": "1.2.3.4, 5.6.7.8", "status": 200});
    assert_eq!(given.main(), [expected]);
}

#[test]
fn lines_of_the_log_of_errors_of_both_versions() {
    let given = parsed(
        "format: error",
        &[
            "[Fri Sep 09 10:42:29.902022 2011] [core:error] [pid 35708:tid 4328636416] [client 72.15.99.187:1234] File does not exist: /usr/local/apache2/htdocs/favicon.ico",
            "[Wed Oct 11 14:32:52 2000] [error] [client 127.0.0.1] client denied by server configuration",
            "[Wed Oct 11 14:32:52 2000] [-:trace1] [client ::1] [id 7] x",
        ],
    );
    assert_eq!(
        given.main(),
        [
            json!({"time": 1_315_564_949_902_022_i64, "module": "core", "level": "error", "pid": 35708,
                "tid": "4328636416", "client": "72.15.99.187", "port": 1234,
                "message": "File does not exist: /usr/local/apache2/htdocs/favicon.ico"}),
            json!({"time": 971_274_772_000_000_i64, "level": "error", "client": "127.0.0.1",
                "message": "client denied by server configuration"}),
            json!({"time": 971_274_772_000_000_i64, "level": "trace1", "client": "::1", "message": "[id 7] x"}),
        ]
    );
    let given = parsed("format: error", &["x", "[x] y"]);
    assert_eq!(
        given.reasons(),
        ["does not begin with a time in brackets", "the field `time` is not a time: `x`"]
    );
}

#[test]
fn a_source_and_an_error_may_stand_before_the_client() {
    let head = "[Thu Oct 01 13:16:02.751051 2026]";
    let lines = [
        "[core:error] [pid 7:tid 8] (13)Permission denied: [client 170.140.220.100:56168] AH00035: access denied",
        "[core:error] [pid 7:tid 8] [client ::1:46010] AH00132: file permissions deny server access",
        "[core:error] [pid 7:tid 8] [client 2001:db8::1:443] x",
        "[ssl:debug] [pid 7:tid 8] ssl_engine_kernel.c(415): [client 1.2.3.4:5] AH02034: Initial: x",
        "[core:error] [pid 7:tid 8] util.c(9): (EAI 2)Name or service not known: AH1: x: [client 6.6.6.6:6] y",
        "[core:error] [pid 7:tid 8] x: [client 6.6.6.6:6] y",
        "[error] [client 2001:db8::1:443] x",
    ]
    .map(|line| format!("{head} {line}"));
    let given = testing::apply::<ParseApache>("format: error", [testing::batch(&lines)]);
    let found: Vec<_> = given
        .main()
        .into_iter()
        .map(|row| ["source", "error", "client", "port", "message"].map(|name| row[name].clone()))
        .collect();
    assert_eq!(
        json!(found),
        json!([
            [null, "(13)Permission denied", "170.140.220.100", 56168, "AH00035: access denied"],
            [null, null, "::1", 46010, "AH00132: file permissions deny server access"],
            [null, null, "2001:db8::1", 443, "x"],
            ["ssl_engine_kernel.c(415)", null, "1.2.3.4", 5, "AH02034: Initial: x"],
            ["util.c(9)", "(EAI 2)Name or service not known", null, null, "AH1: x: [client 6.6.6.6:6] y"],
            [null, null, null, null, "x: [client 6.6.6.6:6] y"],
            [null, null, "2001:db8::1:443", null, "x"],
        ])
    );
}

#[test]
fn mistakes_name_the_option() {
    let mistake = |yaml: &str| testing::messages(testing::options::<ParseApache>(yaml).check()).join("\n");
    assert_eq!(
        mistake("format: commn"),
        "`commn` is not a format of Apache. It is `common`, `combined`, `vhost_combined`, `error`, or a text with directives, such as `%h`."
    );
    assert_eq!(mistake("format: '%h %Z'"), "`%Z` is not a directive of a format.");
    assert_eq!(mistake("format: '%h %>'"), "The format ends within a directive.");
    assert_eq!(mistake("format: '%{a'"), "A `{` of the format has no `}`.");
    assert_eq!(
        mistake("types: { size: int }"),
        "`size` is given a type, but there is no field of that name."
    );
}

proptest! {
    #[test]
    fn every_line_leaves(lines in prop::collection::vec("[0-9\" \\[\\]\\\\x:,-]{0,30}", 1..20)) {
        no_line_is_lost::<ParseApache>("format: '%s %t \"%r\"'", &lines)?;
        no_line_is_lost::<ParseApache>("format: error", &lines)?;
    }

    #[test]
    fn no_format_panics(format in "[%a-zA-Z{}<>! \"\\\\]{0,20}") {
        let _ = format::read(&format);
    }
}
