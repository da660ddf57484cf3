//! The dead letters of a run over HTTP.

use serde_json::{Value, json};
use thalweg_testbed::Patience;

use crate::api::{Running, configuration};
use crate::common::House;

#[test]
fn the_dead_letters_of_the_run_are_shown() {
    let house = House::with(&[("c.yaml", &configuration())]);
    let running = Running::start(&house, &[]);
    let patience = Patience::begin();
    let letters = loop {
        let found = running.value("/api/v1/dead_letters?limit=2");
        let letters = found["dead_letters"].as_array().unwrap().clone();
        if letters.len() == 2 {
            break letters;
        }
        patience.check(|| format!("{found}"));
    };
    assert_eq!((&letters[0]["id"], &letters[0]["payload"]), (&json!(1), &json!("no JSON")));
    assert_eq!(letters[0]["component"], "parsed.parse_json");
    let next = running.value("/api/v1/dead_letters?limit=1&after=1");
    assert_eq!(next["dead_letters"][0]["id"], 2);
    let of_others = running.value("/api/v1/dead_letters?component=main");
    assert_eq!(of_others["dead_letters"], json!([]));
    let one = running.value("/api/v1/dead_letters/1");
    assert_eq!(
        (&one["payload"], &one["passed"], &one["fields"]),
        (&json!("no JSON"), &json!([]), &json!([]))
    );
    assert_eq!(
        (running.get("/api/v1/dead_letters/0").0, running.get("/api/v1/dead_letters/x").0),
        (404, 404)
    );
    running.stop();
}

#[test]
fn the_dead_letters_of_the_run_are_discarded() {
    let house = House::with(&[("c.yaml", &configuration())]);
    let running = Running::start(&house, &[]);
    let discard = |body: &str| running.post("/api/v1/dead_letters/discard", body);
    let patience = Patience::begin();
    while running.get("/api/v1/dead_letters/3").0 != 200 {
        patience.check(|| "there are no three dead letters".to_owned());
    }
    assert_eq!(discard(r#"{"ids":[1,3,3]}"#), (200, json!({ "discarded": 2 })));
    assert_eq!(discard(r#"{"component":"main"}"#), (200, json!({ "discarded": 0 })));
    assert_eq!(running.value("/api/v1/dead_letters?limit=1")["dead_letters"][0]["id"], 2);
    let oldest = discard(r#"{"component":"parsed","limit":1}"#);
    assert_eq!(oldest, (200, json!({ "discarded": 1, "next": 2 })));
    assert_eq!(running.get("/api/v1/dead_letters/2").0, 404);
    let refused = discard("{}");
    assert!(refused.0 == 400 && refused.1["error"].as_str().unwrap().contains("`ids`"), "{refused:?}");
    running.stop();
}

/// A run that rejects this many messages in `many.parse_json` at once, and goes on without others.
fn rejecting(count: u64) -> String {
    format!(
        "\
sources:
  bad: {{ generate: {{ lines: ['no JSON'], count: {count} }} }}
  good: {{ generate: {{ lines: ['1'], count: 1000000000, rate: 10 }} }}
pipelines:
  many: {{ from: bad, transforms: [parse_json], to: out }}
  few: {{ from: good, to: out }}
sinks:
  out: discard
"
    )
}

#[test]
fn a_request_looks_at_a_bounded_number_of_dead_letters_and_says_where_it_ended() {
    const KEPT: u64 = 20_100;
    const LOOKED_AT: u64 = 20_000;
    let house = House::with(&[("c.yaml", &rejecting(KEPT))]);
    let running = Running::start(&house, &[]);
    let patience = Patience::begin();
    while running.get(&format!("/api/v1/dead_letters/{KEPT}")).0 != 200 {
        patience.check(|| "there are too few dead letters".to_owned());
    }
    let discard = |body: &Value| running.post("/api/v1/dead_letters/discard", &body.to_string());
    let list = |after: u64| running.value(&format!("/api/v1/dead_letters?component=few&after={after}"));
    let discarded = |after: u64| discard(&json!({ "component": "few", "after": after })).1;
    for is_listed in [true, false] {
        let (mut after, mut answers) = (0, 0);
        loop {
            let found = if is_listed { list(after) } else { discarded(after) };
            answers += 1;
            assert!(found["dead_letters"] == json!([]) || found["discarded"] == 0, "{found}");
            let Some(next) = found["next"].as_u64() else { break };
            assert!((after + 1..=after + LOOKED_AT).contains(&next), "{found}");
            after = next;
        }
        assert!(answers > 1 && after >= KEPT - LOOKED_AT, "{answers} {after}");
    }
    let of_many = discard(&json!({ "component": "many", "after": KEPT - 10, "limit": 2 }));
    assert_eq!(of_many, (200, json!({ "discarded": 2, "next": KEPT - 8 })));
    running.stop();
}
