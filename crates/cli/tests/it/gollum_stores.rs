//! gollum's configurations that write to Redis and S3, run as they are against real servers.

use std::collections::BTreeMap;
use std::fs;

use thalweg_testbed::{Redis, RedisValue, S3};

use crate::common::House;

/// Runs a configuration of gollum, and checks what it is converted to.
fn run(config: &str, input: &str) {
    let house = House::with(&[("gollum.conf", config)]);
    let said = house.run_with_input(&["run", "gollum.conf", "--quiet"], input.as_bytes());
    assert_eq!(said.code, Some(0), "{}", said.err);
    house.run_well(&["convert", "gollum.conf", "--output", "converted.yaml"]);
    house.run_well(&["check", "converted.yaml"]);
}

/// Returns the objects in a bucket: their names, from the folder on, with their contents.
fn objects(store: &S3, folder: &str) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(store.folder().join(folder)).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    files.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

/// Returns the settings of gollum that reach a store.
fn store_settings(store: &S3) -> String {
    format!(
        "  Region: {}\n  Endpoint: {}\n  Credential:\n    Type: static\n    Id: {}\n    Secret: {}\n",
        store.region(),
        store.endpoint(),
        store.access_key(),
        store.secret_key()
    )
}

#[test]
fn objects_of_each_stream_have_its_messages() {
    let store = S3::start().unwrap();
    store.create_bucket("logs").unwrap();
    let config = format!(
        "In: {{ Type: consumer.Console, Streams: [one, two] }}\n\
         Out:\n  Type: producer.AwsS3\n  Streams: [one, two]\n  Bucket: logs/archive\n  File: \"*.log\"\n{}  \
         Modulators: [format.Envelope]\n",
        store_settings(&store)
    );
    run(&config, "a\nb\n");
    let objects = objects(&store, "logs/archive");
    assert_eq!(objects.len(), 2, "{objects:?}");
    for (stream, (name, content)) in ["one", "two"].iter().zip(&objects) {
        assert!(name.starts_with(&format!("{stream}_20")) && name.ends_with(".log"), "{name}");
        assert_eq!(content, b"a\nb\n");
    }
}

#[test]
fn objects_of_the_former_producer_have_a_number_of_messages_and_a_checksum_in_their_names() {
    let store = S3::start().unwrap();
    store.create_bucket("logs").unwrap();
    let config = |rest: &str| {
        format!(
            "In: {{ Type: consumer.Console, Streams: s }}\n\
             Out:\n  Type: deprecated.producer.S3\n  Streams: s\n  StreamMapping: {{ s: logs/{rest}/x- }}\n  \
             ObjectMaxMessages: 2\n  BatchTimeoutSec: 3600\n{}",
            store_settings(&store)
        )
    };
    run(&config("plain"), "a\nb\nc\n");
    let plain = objects(&store, "logs/plain");
    let mut contents: Vec<&[u8]> = plain.values().map(Vec::as_slice).collect();
    contents.sort_unstable();
    assert_eq!(contents, [&b"a\nb\n"[..], b"c\n"], "{plain:?}");
    // The time, and the 40 digits of a SHA-1.
    let is_named =
        |name: &String| name.starts_with("x-20") && name.len() == "x-2006-01-02T15:04:05".len() + 40;
    assert!(plain.keys().all(is_named), "{plain:?}");

    run(&(config("packed") + "  Compress: true\n"), "a\nb\n");
    let packed = objects(&store, "logs/packed");
    assert_eq!(packed.len(), 1, "{packed:?}");
    let is_gzip =
        |(name, content): (&String, &Vec<u8>)| name.ends_with(".gz") && content.starts_with(&[0x1f, 0x8b]);
    assert!(packed.iter().all(is_gzip), "{packed:?}");
}

#[test]
fn values_are_stored_in_redis_as_the_storage_says() {
    let redis = Redis::start().unwrap();
    let address = redis.address();
    let producer = |name: &str, storage: &str, field: &str| {
        format!(
            "{name}: {{ Type: producer.Redis, Streams: s, Address: '{address}', Storage: {storage}, \
             KeyFrom: {name}{field} }}\n"
        )
    };
    let config = [
        "In: { Type: consumer.Console, Streams: s, Modulators: [format.JSON] }\n".to_owned(),
        producer("h", "hash", ", FieldFrom: n"),
        producer("l", "list", ""),
        producer("m", "set", ""),
        producer("z", "sortedset", ", FieldFrom: n"),
        producer("t", "string", ""),
    ];
    let message = |number: u32| {
        format!(
            "{{\"n\":\"{number}\",\"h\":\"hash\",\"l\":\"list\",\"m\":\"set\",\"z\":\"sorted\",\"t\":\"text\"}}"
        )
    };
    run(&config.concat(), &format!("{}\n{}\n", message(2), message(1)));
    let texts = |words: &[&str]| redis.call(words).unwrap().texts();
    assert_eq!(texts(&["HGET", "hash", "1"]), [message(1)]);
    assert_eq!(texts(&["HGET", "hash", "2"]), [message(2)]);
    assert_eq!(texts(&["LRANGE", "list", "0", "-1"]), [message(2), message(1)]);
    assert_eq!(redis.call(&["SCARD", "set"]).unwrap(), RedisValue::Number(2));
    assert_eq!(texts(&["ZRANGE", "sorted", "0", "-1"]), [message(1), message(2)]);
    assert_eq!(texts(&["GET", "text"]), [message(1)]);
}

#[test]
fn no_value_of_a_hash_replaces_another_in_the_old_form() {
    let redis = Redis::start().unwrap();
    let config = format!(
        "- \"consumer.Console\":\n    Stream: s\n\
         - \"producer.Redis\":\n    Stream: s\n    Address: \"{}\"\n    Key: all\n",
        redis.address()
    );
    run(&config, "a\nb\na\n");
    let mut values = redis.call(&["HVALS", "all"]).unwrap().texts();
    values.sort_unstable();
    assert_eq!(values, ["a", "a", "b"]);
}
