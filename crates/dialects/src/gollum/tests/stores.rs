//! Tests the producers of stores and brokers, and the consumer of the journal: what each option becomes.

use super::*;
use crate::gollum::read_as;
use crate::gollum::version::Version;

/// Asserts that a converted file has these texts, apart from quotes, and not those.
fn assert_has(text: &str, expected: &[&str], unexpected: &[&str]) {
    let plain = |text: &str| text.replace(['"', '\''], "");
    let written = plain(&converted(text));
    for expected in expected {
        assert!(written.contains(&plain(expected)), "{expected}\n{written}");
    }
    for unexpected in unexpected {
        assert!(!written.contains(&plain(unexpected)), "{unexpected}\n{written}");
    }
}

/// Returns the mistakes in a file.
fn mistakes(text: &str) -> String {
    read(&Document::parse("gollum.conf", text).unwrap()).unwrap_err().to_string()
}

fn remarks(text: &str, version: Version) -> String {
    read_as(&Document::parse("gollum.conf", text).unwrap(), version).unwrap().remarks.to_string()
}

/// Returns a file of v0.5 and later with a producer of messages of the stream `s`.
fn producer(settings: &str) -> String {
    format!("In: {{ Type: consumer.Console, Streams: s }}\nOut: {{ Streams: s, {settings} }}\n")
}

#[test]
fn objects_of_aws_have_the_name_of_the_stream_and_the_time() {
    let text = producer(
        "Type: producer.AwsS3, Bucket: logs/of/us, File: 'in/*_{x}.log', Region: eu-west-1, \
         Credential: { Type: static, Id: K, Secret: 's/c', Token: t, AssumeRole: 'arn:x' }, \
         Rotation: { SizeMB: 20, TimeoutMin: 90, Timestamp: '2006-01-02T15:04' }",
    );
    assert_has(
        &text,
        &[
            "pack:",
            "name: s_{{x}}_{time:%Y-%m-%dT%H:%M}.log",
            "max_file_bytes: 20MiB",
            "max_age: 90m",
            "delimiter: \"\"",
            "url: s3://logs/of/us/in/?region=eu-west-1&access_key_id=K&secret_access_key=s/c&session_token=t\
             &role_arn=arn:x&enable_virtual_host_style=true",
            "existing: replace",
        ],
        &["skip_signature", "max_count"],
    );
}

#[test]
fn objects_of_aws_have_the_defaults_of_gollum() {
    assert_has(
        &producer("Type: producer.AwsS3, Bucket: logs"),
        &[
            "name: gollum_s_{time:%Y-%m-%d_%H}.log",
            "max_file_bytes: 1GiB",
            "max_age: 24h",
            "url: s3://logs/?region=us-east-1&skip_signature=true&enable_virtual_host_style=true",
        ],
        &["access_key_id"],
    );
    // Credentials of the environment are no part of the address.
    for kind in ["environment", "shared"] {
        let text = producer(&format!("Type: producer.AwsS3, Bucket: logs, Credential: {{ Type: {kind} }}"));
        assert_has(&text, &["region=us-east-1&enable"], &["skip_signature"]);
    }
    // Each message is an object if none may be larger or older than nothing.
    let text = producer("Type: producer.AwsS3, Bucket: logs, Rotation: { SizeMB: 0 }");
    assert_has(&text, &["max_count: 1"], &[]);
}

#[test]
fn objects_of_the_former_producer_have_a_time_and_a_checksum() {
    let text = producer(
        "Type: deprecated.producer.S3, StreamMapping: { s: bucket/a/b- }, Compress: true, \
         ObjectMaxMessages: 7, ObjectMessageDelimiter: ';', StorageClass: GLACIER, \
         Endpoint: 'http://127.0.0.1:9000'",
    );
    assert_has(
        &text,
        &[
            "name: b-{time:%Y-%m-%dT%H:%M:%S}",
            "max_count: 7",
            "max_file_bytes: 1GiB",
            "delimiter: ;",
            "compression: gzip",
            "algorithm: sha1",
            "to: {name}{hash}.gz",
            "url: s3://bucket/a/?region=eu-west-1&endpoint=http://127.0.0.1:9000&default_storage_class=GLACIER",
            "max_age: 3s",
        ],
        &["skip_signature", "virtual_host"],
    );
    let text = producer(
        "Type: deprecated.producer.S3, PathFormatter: format.Identifier, LocalPath: there, TimestampWrite: ''",
    );
    assert_has(
        &text,
        &["name: {id}", "max_count: 500", "max_file_bytes: 1GiB", "max_age: 6m", "s3://default/?"],
        &["sha1", "rename_file"],
    );
}

#[test]
fn the_former_producer_has_the_defaults_of_its_version() {
    let text = "
- \"consumer.Console\":
    Stream: s
- \"producer.S3\":
    Stream: s
    CredentialType: static
    CredentialId: K
    CredentialSecret: x
    LocalPath: there
";
    assert_has(
        text,
        &["max_count: 5000", "max_file_bytes: 1000MB", "max_age: 1h", "s3://s/?", "access_key_id=K"],
        &[],
    );
}

#[test]
fn what_is_wrong_with_objects_is_said() {
    for (settings, expected) in [
        ("Type: producer.AwsS3", "has no bucket"),
        ("Type: producer.AwsS3, Bucket: 's3://logs'", "`Bucket` begins with what cannot be a bucket"),
        ("Type: producer.S3, StreamMapping: { s: 's3://b/x' }", "`StreamMapping` begins with what cannot be"),
        ("Type: producer.AwsS3, Bucket: b, Credential: { Type: magic }", "`magic` is no kind of credentials"),
        (
            "Type: producer.AwsS3, Bucket: b, Rotation: { Timestamp: 2006/01 }",
            "cannot be a part of an object",
        ),
        ("Type: producer.S3, PathFormatter: format.Hostname", "`format.Hostname` cannot make"),
    ] {
        let mistakes = mistakes(&producer(settings));
        assert!(mistakes.contains(expected), "{mistakes}");
    }
}

#[test]
fn a_bucket_that_cannot_be_one_is_not_shown() {
    let mistakes = mistakes(&producer("Type: producer.AwsS3, Bucket: 'me:letmein@logs'"));
    assert!(mistakes.contains("`Bucket` begins with") && !mistakes.contains("`me:letmein"), "{mistakes}");
}

#[test]
fn sizes_and_ages_of_objects_are_within_limits() {
    let (huge, negative) = (i64::MAX, i64::MIN);
    assert_has(
        &producer(&format!(
            "Type: producer.AwsS3, Bucket: b, Rotation: {{ SizeMB: {huge}, TimeoutMin: {huge} }}"
        )),
        &["max_file_bytes: 5120GiB", "max_age: 876000h"],
        &["max_count"],
    );
    let former = |settings: &str| {
        producer(&format!("Type: producer.S3, StreamMapping: {{ s: b/x }}, LocalPath: there, {settings}"))
    };
    let text = former(&format!("FileMaxMB: {huge}, FileMaxAgeSec: {huge}, ObjectMaxMessages: {huge}"));
    assert_has(&text, &["max_file_bytes: 5242880MB", "max_age: 876000h", &format!("max_count: {huge}")], &[]);
    // Each message is an object if none may be larger or older than nothing. It has no delimiter then.
    for limits in [format!("FileMaxMB: {negative}, ObjectMaxMessages: 7"), "FileMaxAgeSec: 0".to_owned()] {
        assert_has(&former(&limits), &["max_count: 1", "delimiter: "], &["max_count: 7", "delimiter: \\n"]);
    }
    assert_has(
        &former("ObjectMaxMessages: 1, ObjectMessageDelimiter: x"),
        &["delimiter: "],
        &["delimiter: x"],
    );
    let text = producer("Type: producer.S3, StreamMapping: { s: b/x }, BatchTimeoutSec: 90");
    assert_has(&text, &["max_age: 90s"], &[]);
}

#[test]
fn names_of_objects_have_no_empty_parts() {
    let text = producer("Type: producer.AwsS3, Bucket: b//a/, File: /in//x.log");
    assert_has(&text, &["url: s3://b/a/in/?", "name: x_{time:"], &[]);
    let text = producer("Type: producer.S3, StreamMapping: { s: b/a/.. }, TimestampWrite: ''");
    assert_has(&text, &["name: {number}", "to: ..{hash}"], &[]);
}

#[test]
fn objects_have_no_failover_that_keeps_their_messages_in_memory() {
    for settings in ["Type: producer.AwsS3, Bucket: b", "Type: producer.S3, ChannelTimeoutMs: 5"] {
        let text = format!(
            "In: {{ Type: consumer.Console, Streams: s }}\n\
             Out: {{ {settings}, Streams: s, FallbackStream: other }}\n\
             Other: {{ Type: producer.Console, Streams: other }}\n"
        );
        assert_has(&text, &["max_age:"], &["failover:"]);
        let remarks = remarks(&text, Version::V06);
        assert!(remarks.contains("`FallbackStream` has no effect here"), "{remarks}");
    }
}

#[test]
fn streams_with_one_place_have_one_sink() {
    let of_streams = |settings: &str| {
        let text = format!(
            "In: {{ Type: consumer.Console, Streams: [s, t] }}\n\
             Out: {{ Type: deprecated.producer.S3, Streams: [s, t], {settings} }}\n"
        );
        let written = converted(&text);
        (written.matches("objects:").count(), written.matches("pack:").count())
    };
    // `objects:` is also the end of a pipeline's name.
    assert_eq!(of_streams("StreamMapping: { '*': b/x }").1, 1);
    assert_eq!(of_streams("Region: eu-west-1").1, 1);
    let (same, packs) = of_streams("StreamMapping: { s: b/x, t: b/x }");
    let (others, _) = of_streams("StreamMapping: { s: b/x, t: b/y }");
    assert_eq!((others - same, packs), (1, 2));
}

#[test]
fn a_router_reaches_the_streams_that_only_a_mapping_names() {
    let routed = |settings: &str| {
        format!(
            "In: {{ Type: consumer.Console, Streams: s }}\n\
             Router: {{ Type: router.Metadata, Stream: s, Key: to }}\n\
             Out: {{ Streams: '*', {settings} }}\n"
        )
    };
    let text = routed("Type: producer.Kafka, Topics: { a: topic-of-a }");
    assert_has(&text, &["topic: topic-of-a", "topic: {to}", "Router.a"], &[]);
    let text = routed("Type: producer.S3, StreamMapping: { a: b/of-a, '*': b/x }");
    assert_has(&text, &["name: of-a{time:", "name: x{time:"], &[]);
    let mistakes = mistakes(&routed("Type: producer.S3, StreamMapping: { a: b/of-a }"));
    assert!(mistakes.contains("A router chooses the stream"), "{mistakes}");
}

#[test]
fn pipelines_of_objects_are_called_by_their_streams() {
    let text = "In: { Type: consumer.Console, Streams: [s, t] }\n\
                Out: { Type: producer.AwsS3, Bucket: b, Streams: [s, t] }\n\
                Other: { Type: producer.Console, Streams: [s, t] }\n";
    assert_has(text, &["Out-s-objects:", "Out-t-objects:"], &["Out-objects"]);
}

#[test]
fn a_former_producer_to_which_nothing_is_sent_is_left_out() {
    let text = "- \"consumer.Console\":\n    Stream: s\n- \"producer.Null\":\n    Stream: s\n\
                - \"producer.S3\":\n    Stream: unused\n";
    assert_has(text, &["discard:"], &["objects:", "has no bucket"]);
}

#[test]
fn producers_of_objects_may_stand_beside_a_producer_of_traces() {
    let text = "In: { Type: consumer.Console, Streams: s, Modulators: [format.JSON] }\n\
                Out: { Type: producer.AwsS3, Bucket: b, Streams: s }\n\
                Failed: { Type: producer.Console, Streams: _TRACE_ }\n";
    assert_has(text, &["s.errors", "to: Out-objects"], &["Out-objects.errors"]);
}

#[test]
fn options_of_librdkafka_become_those_of_the_sink() {
    let text = producer(
        "Type: native.KafkaProducer, Servers: ['a:1', 'b:2'], Topic: { s: t }, ClientId: c, KeyFrom: k, \
         Compression: zip, RequiredAcks: 1, TimeoutMs: 500, SecurityProtocol: SASL_SSL, \
         SaslMechanism: SCRAM-SHA-512, SaslUsername: u, SaslPassword: p, SslCaLocation: ca.pem, \
         SslCertificateLocation: c.pem, SslKeyLocation: k.pem",
    );
    assert_has(
        &text,
        &[
            "filter: payload <> ",
            "topic: t",
            "client_id: c",
            "key: k",
            "compression: gzip",
            "acks: leader",
            "timeout: 500ms",
            "mechanism: scram_sha_512",
            "user: u",
            "password: p",
            "ca: ca.pem",
            "certificate: c.pem",
            "key: k.pem",
        ],
        &[],
    );
    assert_has(&producer("Type: native.KafkaProducer"), &["topic: default"], &["tls:", "auth:"]);
    // librdkafka takes several brokers in one text, and its own port for one without.
    let text = producer(
        "Type: native.KafkaProducer, Servers: 'a:1, b,[::1]', SslCrlLocation: '', SslKeyPassword: ''",
    );
    assert_has(&text, &["a:1", "b:9092", "[::1]:9092"], &[]);
    for (settings, expected) in [
        ("SecurityProtocol: tls", "`tls` is not a security protocol"),
        ("SecurityProtocol: sasl_ssl", "`GSSAPI` has no equivalent"),
        ("SslCrlLocation: crl.pem", "`SslCrlLocation` of `native.KafkaProducer` has no equivalent"),
        ("KeyFormatter: format.Hostname", "`KeyFormatter` of `native.KafkaProducer` has no equivalent"),
    ] {
        let mistakes = mistakes(&producer(&format!("Type: native.KafkaProducer, {settings}")));
        assert!(mistakes.contains(expected), "{mistakes}");
    }
}

#[test]
fn names_of_kafkas_options_in_the_old_form_are_known() {
    let text = "
- \"consumer.Console\":
    Stream: s
- \"producer.Kafka\":
    Stream: s
    Topic: { s: topic-of-s }
    TimoutMs: 700
    BatchSizeMaxKB: 5
";
    assert_has(text, &["topic: topic-of-s", "timeout: 700ms"], &[]);
    let remarks = remarks(text, Version::V04);
    assert!(!remarks.contains("is not a setting"), "{remarks}");
}

#[test]
fn the_field_of_a_hash_in_the_old_form_is_an_identifier() {
    let old = |settings: &str| {
        format!(
            "- \"consumer.Console\":\n    Stream: s\n- \"producer.Redis\":\n    Stream: s\n    Key: k\n{settings}"
        )
    };
    let expected =
        ["add_id:", "into: redis_identifier", "kind: time", "start: 0", "field: {redis_identifier}"];
    assert_has(&old(""), &expected, &[]);
    let hashed = old("    FieldFormatter: format.Identifier\n    IdentifierType: hash\n");
    assert_has(&hashed, &["kind: hash", "key: k"], &["start:"]);
    let sorted = old("    Storage: sortedset\n");
    assert_has(&sorted, &["score: {redis_identifier}"], &["field:"]);
    assert_has(&old("    Storage: list\n"), &["command: rpush"], &["add_id"]);
    let other = mistakes(&old("    FieldFormatter: format.Hostname\n"));
    assert!(other.contains("`format.Hostname` cannot make the field"), "{other}");
    let unused = old("    IdentifierDataFormatter: format.Hostname\n");
    assert!(remarks(&unused, Version::V04).contains("`IdentifierDataFormatter` has no effect here"));
    let key = mistakes(&old("    KeyFormatter: format.Hostname\n"));
    assert!(key.contains("`KeyFormatter` of `producer.Redis` has no equivalent"), "{key}");
    // An identifier of the message as it was, or as its formatters leave it.
    let place = |settings: &str| {
        let file = format!("    Formatter: format.Hostname\n{settings}");
        let written = converted(&old(&file));
        written.find("add_id").unwrap() < written.find("hostname").unwrap()
    };
    assert!(place(""));
    assert!(!place("    FieldAfterFormat: true\n"));
}

#[test]
fn a_key_that_later_versions_do_not_read_is_remarked() {
    let text = producer("Type: producer.Redis, Key: all, Storage: list");
    assert!(remarks(&text, Version::V06).contains("Without `KeyFrom`, all values go to the key `all`"));
    assert!(!remarks(&text, Version::V04).contains("KeyFrom"));
}

#[test]
fn addresses_of_redis_are_those_of_go() {
    for (address, expected) in [
        ("6380", "servers: localhost:6380"),
        (":6381", "servers: localhost:6381"),
        ("TCP://db:1", "servers: db:1"),
        ("UNIX:///run/redis.sock", "servers: unix:///run/redis.sock"),
    ] {
        let text = producer(&format!("Type: producer.Redis, Key: k, Storage: list, Address: '{address}'"));
        assert_has(&text, &[expected], &[]);
    }
}

#[test]
fn the_journal_is_read_from_its_end_or_its_beginning() {
    let journal = |settings: &str| {
        format!(
            "In: {{ Type: native.SystemdConsumer, Streams: s{settings} }}\nOut: {{ Type: producer.Null, Streams: s }}\n"
        )
    };
    assert_has(
        &journal(", SystemdUnit: sshd.service, OffsetFile: /var/lib/offset"),
        &[
            "state: /var/lib/offset.d",
            "journald:",
            "_SYSTEMD_UNIT: sshd.service",
            "current_boot_only: false",
            "since: now",
            "parse_journal:",
            "MESSAGE: text",
            "IS NOT NULL",
            "payload: ",
        ],
        &[],
    );
    assert_has(&journal(", DefaultOffset: Oldest"), &["journald:"], &["since:"]);
    assert_has(&journal(", DefaultOffset: '1500000000999999'"), &["since: @1500000001.000000"], &[]);
    let mistakes = mistakes(&journal(", DefaultOffset: never"));
    assert!(mistakes.contains("`never` is not a start position"), "{mistakes}");
}
