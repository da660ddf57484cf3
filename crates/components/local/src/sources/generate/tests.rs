use super::*;
use std::collections::BTreeMap;
use thalweg_engine::testing::{Arrived, messages, options, read_all, refused, start};
use thalweg_record::{Outcome, payload_runs};

async fn made(yaml: &str) -> Vec<String> {
    let sent = read_all::<GenerateConfig>(yaml, 4096).await;
    assert!(sent.result.is_none());
    sent.payloads()
}

#[tokio::test]
async fn lines_come_in_turn_each_once_by_default() {
    assert_eq!(made("{ lines: [a, '', 'a longer line than a view holds'] }").await.len(), 3);
    assert_eq!(made("{ lines: [a, b], count: 5 }").await, ["a", "b", "a", "b", "a"]);
    assert!(made("{ count: 0 }").await.is_empty());
}

#[test]
fn it_ends_with_a_count_or_with_lines() {
    let endless = |yaml| options::<GenerateConfig>(yaml).endless();
    for yaml in ["{ count: 5 }", "{ lines: [a, b] }", "{ lines: [a], count: 7 }", "{ count: 0 }"] {
        assert_eq!(endless(yaml), None, "{yaml}");
    }
    for yaml in ["{}", "{ message: '%8d' }", "{ rate: 5, templates: 0 }"] {
        assert_eq!(endless(yaml), Some(Endless::Without("count")), "{yaml}");
    }
}

#[tokio::test]
async fn verbs_are_filled_in() {
    let message = "100%% %3d|%4s|%c|%2f|%1e|%1g|%3x|%3X|%3o|%3b|%2q";
    for templates in [0, 10] {
        let messages = made(&format!("{{ message: '{message}', templates: {templates}, count: 50 }}")).await;
        assert_eq!(messages.len(), 50);
        for message in messages {
            let parts: Vec<_> = message.strip_prefix("100% ").unwrap().split('|').collect();
            assert!(parts[0].parse::<u32>().unwrap() < 1000);
            assert_eq!((parts[1].len(), parts[2].len(), parts[10].len()), (4, 1, 2));
            assert!(parts[3..6].iter().all(|part| part.parse::<f64>().unwrap() < 100.0));
            assert!(u32::from_str_radix(parts[9], 2).unwrap() < 1000);
        }
    }
}

#[tokio::test]
async fn the_same_seed_makes_the_same_messages_and_another_run_others() {
    for templates in [0, 3] {
        let yaml = format!("{{ seed: 7, templates: {templates}, count: 20, characters: 'äß€x' }}");
        let messages = made(&yaml).await;
        assert_eq!(messages, made(&yaml).await);
        assert_ne!(messages, made(&yaml.replace('7', "8")).await);
        assert!(messages.iter().all(|message| message.chars().count() == 256));
    }
}

#[tokio::test]
async fn a_batch_is_one_run_of_lines() {
    let sent = read_all::<GenerateConfig>(
        "{ lines: ['', short, 'a longer line than a view holds'], count: 99 }",
        999,
    )
    .await;
    assert!(sent.main.len() > 1);
    for batch in &sent.main {
        let runs = payload_runs(batch.payload(), b'\n').filter(Result::is_ok).count();
        assert!(runs <= batch.rows().div_ceil(2));
    }
    let long = read_all::<GenerateConfig>("{ message: 'a message of some length', count: 99 }", 999).await;
    assert!(long.main.iter().all(|batch| payload_runs(batch.payload(), b'\n').count() == 1));
}

#[tokio::test]
async fn a_message_longer_than_a_batch_is_made() {
    for templates in [0, 1] {
        let messages = made(&format!("{{ message: '%9000s', templates: {templates}, count: 3 }}")).await;
        assert!(messages.len() == 3 && messages.iter().all(|message| message.len() == 9000));
    }
}

#[tokio::test]
async fn a_later_run_makes_what_was_still_to_come() {
    let yaml = "{ seed: 1, message: '%8d', templates: 0, count: 10 }";
    let all = made(yaml).await;
    let saved = BTreeMap::from([(PARTITION.to_owned(), serde_json::json!({ "made": 6 }))]);
    let running = start::<GenerateConfig>(yaml, 4096, saved);
    let mut rest = Vec::new();
    while let Some((_, Arrived::Messages(batch))) = running.main.take().await {
        rest.extend(thalweg_engine::testing::payloads(&batch));
        batch.settle(Outcome::Delivered);
    }
    assert_eq!(rest, all[6..]);
    assert_eq!(running.positions.saved(PARTITION), Some(serde_json::json!({ "made": 10 })));
}

#[tokio::test]
async fn a_rate_is_kept_from_the_first_message_on() {
    let config = options::<GenerateConfig>("{ rate: 1000 }");
    let generate = |made| Generate {
        filler: Filler { maker: Maker::InTurn(vec![b"x\n".to_vec()]), seed: 0, made, pending: Vec::new() },
        count: None,
        rate: config.rate,
        lengths: Vec::new(),
        resumed: true,
    };
    let second = Duration::from_secs(1);
    assert_eq!(generate(10).due(1000.0, second, 10), Ok(1001));
    // The wait is 10 ms longer than the time to the next message, so that the source does not wake up for
    // each message.
    assert_eq!(generate(100_010).due(1000.0, second, 10), Err(Duration::from_secs_f64(99.01)));
    assert_eq!(made("{ message: x, rate: 100000, count: 7 }").await.len(), 7);
}

#[test]
fn a_wrong_verb_is_shown_where_it_is() {
    let place = |text: &str| {
        let error = text.parse::<MessagePattern>().unwrap_err();
        text[error.range.unwrap()].to_owned()
    };
    assert_eq!(place("a %8y"), "%8y");
    assert_eq!(place("a %8é"), "%8é");
    assert_eq!(place("a %s 12%"), "%");
    assert_eq!(place("%99999999999999999999999s"), "%99999999999999999999999s");
    assert_eq!(place("%20d"), "%20d");
    assert_eq!(
        refused::<GenerateConfig>("{ message: '%8y' }"),
        "`%8y` is not known. After `%` comes a number and one of `s`, `d`, `x`, `X`, `o`, `b`, `f`, `e`, `g` or `c`, for example `%8s`. A percent sign itself is written `%%`."
    );
    assert_eq!(refused::<GenerateConfig>("{ characters: '' }"), "`characters` is empty.");
}

#[test]
fn what_excludes_each_other_is_refused() {
    let mistakes = |yaml: &str| messages(options::<GenerateConfig>(yaml).check());
    assert_eq!(mistakes("{ lines: [a], message: b }"), ["`lines` and `message` exclude each other."]);
    assert_eq!(mistakes("{ rate: 0 }"), ["`rate` must be greater than 0."]);
    assert_eq!(mistakes("{ rate: 0.5 }"), [""; 0]);
}
