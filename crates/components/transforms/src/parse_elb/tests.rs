use super::*;
use proptest::prelude::*;
use serde_json::json;
use thalweg_engine::testing;

use crate::testing::no_line_is_lost;

const CLASSIC: &str = r#"2015-05-13T23:39:43.945958Z my-loadbalancer 192.168.131.39:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 "GET http://www.example.com:80/ HTTP/1.1" "curl/7.38.0" - -"#;
const TCP: &str = r#"2015-05-13T23:39:43.945958Z my-loadbalancer 192.168.131.39:2817 - 0.001069 -1 -1 - - 82 305 "- - - " "-" - -"#;
const APPLICATION: &str = r#"https 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://www.example.com:443/ HTTP/1.1" "curl/7.46.0 \x22x\x22" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 "Root=1-58337281-1d84f3d73c47ec4e58577259" "www.example.com" "arn:aws:acm:us-east-2:123456789012:certificate/12345678-1234-1234-1234-123456789012" 1 2018-07-02T22:22:48.364000Z "authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-" "-" TID_1234abcd5678ef90 "-" "-" "-" "something of the future""#;
const NETWORK: &str = "tls 2.0 2018-12-20T02:59:40 net/my-network-loadbalancer/c6e77e28c25b2234 g3d4b5e8bb8464cd 72.21.218.154:51341 172.100.100.185:443 5 2 98 246 - arn:aws:acm:us-east-2:671290407336:certificate/2a108f19-aded-46b0-8493-c63eb1ef4a99 - ECDHE-RSA-AES128-SHA tlsv12 - my-network-loadbalancer-c6e77e28c25b2234.elb.us-east-2.amazonaws.com - - - 2018-12-20T02:59:30";

fn parsed(yaml: &str, lines: &[&str]) -> testing::Given {
    testing::apply::<ParseElb>(yaml, [testing::batch(lines)])
}

#[test]
fn it_conforms() {
    testing::transform_conforms::<ParseElb>("{}", &[CLASSIC, "", NETWORK, "\"", APPLICATION, TCP]);
}

#[test]
fn each_line_tells_its_kind() {
    let given = parsed("{}", &[CLASSIC, APPLICATION, NETWORK]);
    let [classic, application, network] = <[_; 3]>::try_from(given.main()).unwrap();
    assert_eq!(
        classic,
        json!({
            "time": 1_431_560_383_945_958_i64, "elb": "my-loadbalancer", "client_ip": "192.168.131.39", "client_port": 2817,
            "backend_ip": "10.0.0.1", "backend_port": 80, "request_processing_time": 0.000_073,
            "backend_processing_time": 0.001_048, "response_processing_time": 0.000_057, "elb_status_code": 200,
            "backend_status_code": 200, "received_bytes": 0, "sent_bytes": 29,
            "request": "GET http://www.example.com:80/ HTTP/1.1", "user_agent": "curl/7.38.0", "request_method": "GET",
            "request_uri": "http://www.example.com:80/", "server_protocol": "HTTP/1.1",
        })
    );
    assert_eq!(
        application,
        json!({
            "type": "https", "time": 1_530_570_180_186_641_i64, "elb": "app/my-loadbalancer/50dc6c495c0c9188",
            "client_ip": "192.168.131.39", "client_port": 2817, "target_ip": "10.0.0.1", "target_port": 80,
            "request_processing_time": 0.086, "target_processing_time": 0.048, "response_processing_time": 0.037,
            "elb_status_code": 200, "target_status_code": 200, "received_bytes": 0, "sent_bytes": 57,
            "request": "GET https://www.example.com:443/ HTTP/1.1", "request_method": "GET",
            "request_uri": "https://www.example.com:443/", "server_protocol": "HTTP/1.1",
            "user_agent": "curl/7.46.0 \"x\"", "ssl_cipher": "ECDHE-RSA-AES128-GCM-SHA256", "ssl_protocol": "TLSv1.2",
            "target_group_arn":
                "arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067",
            "trace_id": "Root=1-58337281-1d84f3d73c47ec4e58577259", "domain_name": "www.example.com",
            "chosen_cert_arn":
                "arn:aws:acm:us-east-2:123456789012:certificate/12345678-1234-1234-1234-123456789012",
            "matched_rule_priority": 1, "request_creation_time": 1_530_570_168_364_000_i64,
            "actions_executed": "authenticate,forward", "target_port_list": "10.0.0.1:80",
            "target_status_code_list": "200", "conn_trace_id": "TID_1234abcd5678ef90",
        })
    );
    assert_eq!(
        network,
        json!({
            "type": "tls", "version": "2.0", "time": 1_545_274_780_000_000_i64,
            "elb": "net/my-network-loadbalancer/c6e77e28c25b2234", "listener": "g3d4b5e8bb8464cd",
            "client_ip": "72.21.218.154", "client_port": 51341, "destination_ip": "172.100.100.185",
            "destination_port": 443, "connection_time": 5, "tls_handshake_time": 2, "received_bytes": 98,
            "sent_bytes": 246,
            "chosen_cert_arn": "arn:aws:acm:us-east-2:671290407336:certificate/2a108f19-aded-46b0-8493-c63eb1ef4a99",
            "tls_cipher": "ECDHE-RSA-AES128-SHA", "tls_protocol_version": "tlsv12",
            "domain_name": "my-network-loadbalancer-c6e77e28c25b2234.elb.us-east-2.amazonaws.com",
            "tls_connection_creation_time": 1_545_274_770_000_000_i64,
        })
    );
}

#[test]
fn a_connection_without_a_request_has_no_parts_of_one() {
    let given = parsed("format: classic", &[TCP]);
    let row = &given.main()[0];
    assert_eq!(row["request"], "- - - ");
    assert_eq!(row["backend_processing_time"], -1.0);
    for absent in ["backend_ip", "backend_port", "elb_status_code", "request_method", "user_agent"] {
        assert_eq!(row.get(absent), None, "{absent}");
    }
}

#[test]
fn names_of_protocols_lose_their_quotes() {
    for (written, expected) in [(r#""h2","http/1.1""#, "h2,http/1.1"), (r#""h2""#, "h2")] {
        let line = NETWORK.replace("- - - 2018", &format!("h2 h2 {written} 2018"));
        let row = parsed("{}", &[&line]).main()[0].clone();
        assert_eq!(row["alpn_client_preference_list"], expected);
        assert_eq!(row["tls_connection_creation_time"], 1_545_274_770_000_000_i64);
    }
}

#[test]
fn what_is_not_a_record_says_why() {
    let cut = &CLASSIC[..CLASSIC.len() - 12];
    let given = parsed("{}", &["a b", "http x", cut, "tls 2.0", ""]);
    assert_eq!(
        given.reasons(),
        [
            "the field `time` is not a time: `a`",
            "the field `time` is not a time: `x`",
            "the quote at byte 158 is not closed",
            "has 2 values, and a record of a network load balancer has at least 11",
            "has 0 values, and a record of a classic load balancer has at least 12",
        ]
    );
    let types = testing::options::<ParseElb>("{ format: network, types: { user_agent: text, elb: json } }");
    assert_eq!(
        testing::messages(types.check()),
        ["`user_agent` is given a type, but there is no field of that name."]
    );
}

/// The values after such a user agent were those that the client had written.
#[test]
fn a_quote_of_a_client_does_not_end_a_value() {
    let with = |agent: &str| APPLICATION.replace(r"curl/7.46.0 \x22x\x22", agent);
    let escaped = [
        (r#"a \"q\" b"#, r#"a "q" b"#),
        (r#"x\" F TLSv1.3 arn:f \"Root=2\" \"-"#, r#"x" F TLSv1.3 arn:f "Root=2" "-"#),
        (r"x\\", r"x\"),
    ];
    for (written, agent) in escaped {
        let row = &parsed("{}", &[&with(written)]).main()[0];
        assert_eq!(row["user_agent"], agent);
        assert_eq!(row["ssl_cipher"], "ECDHE-RSA-AES128-GCM-SHA256");
        assert_eq!(row["conn_trace_id"], "TID_1234abcd5678ef90");
    }
    let unescaped = [r#"a "q" b"#, r#"a" b"#, r"C:\", r#""q" b"#, r#"a,"b","c"#].map(with);
    let given = testing::apply::<ParseElb>("{}", [testing::batch(&unescaped)]);
    let reason = |byte: usize| format!("the quote at byte {byte} is inside of a value, without a backslash");
    let agent = APPLICATION.find("curl").unwrap();
    assert_eq!(
        given.reasons(),
        [agent + 2, agent + 4, unescaped[2].find("Root").unwrap() - 1, agent, agent + 2].map(reason)
    );
    // Behind the last known value.
    let given = parsed("{}", &[&format!("{CLASSIC} a\"")]);
    assert_eq!(given.reasons(), [reason(CLASSIC.len() + 2)]);
}

proptest! {
    #[test]
    fn every_line_leaves(lines in prop::collection::vec("(tls |http )?[0-9a\" :\\\\x-]{0,30}", 1..20)) {
        no_line_is_lost::<ParseElb>("{}", &lines)?;
    }
}
