use proptest::prelude::*;
use thalweg_engine::{Output, testing};

use super::*;
use thalweg_codec::testing::with_text;

fn redacted(yaml: &str, text: &str) -> String {
    testing::apply::<Redact>(yaml, [testing::batch([text])]).payloads(Output::Main)[0].clone()
}

#[test]
fn it_conforms() {
    for yaml in ["{ find: [email, card, ip, iban] }", "{ pattern: 'a*', secret: 'long enough' }"] {
        testing::transform_conforms::<Redact>(yaml, &["a", "", "ann@example.org"]);
    }
}

#[test]
fn each_kind_is_found_and_what_only_looks_like_it_is_not() {
    for (kind, text, expected) in [
        ("email", "to ann.miller+x@mail.example.org.", "to ***."),
        ("email", "user=ann@example.org;é@exämple.de", "user=***;***"),
        ("email", "ann@localhost @ a@b", "ann@localhost @ a@b"),
        ("email", "o'brien@example.org 'ann@example.org'", "*** '***'"),
        ("email", r#""john doe"@example.org "x":"a\"b"@example.org"#, r#"*** "x":***"#),
        ("email", "bounce+ann=example.org@list.org ann@example.org@list.org", "*** ***"),
        ("card", "4111-1111-1111-1111 4111 1111 1111 1111,4111111111111111", "*** ***,***"),
        ("card", "378282246310005", "***"),
        // The last 15 digits are right by chance, but no card begins with 1.
        ("card", "4111-1111-1111-1111-002 x", "***-002 x"),
        ("card", "4111-1111-1111-1111-123 4111111111111111-12/25", "***-123 ***-12/25"),
        ("card", "order 4111111111111112 at 1764058442123456", "order 4111111111111112 at 1764058442123456"),
        ("card", "23 4111-1111-1111-1111", "23 ***"),
        // The first 14 digits are right, and so are the last 16.
        ("card", "22 4111-1111-1111-1111", "***"),
        ("card", "4111-1111-1111-1111 22", "*** 22"),
        // The first 16 digits are right, and so are the last 15.
        ("card", "a 4000-5500-0495-7656-115 b", "a *** b"),
        ("card", "x4111111111111111 41111111111111110000", "x4111111111111111 41111111111111110000"),
        ("ip", "192.0.2.1, [2001:db8::1]:443 ::1.", "***, [***]:443 ***."),
        ("ip", "::ffff:192.0.2.128 10.0.0.1:80", "*** ***:80"),
        (
            "ip",
            "from 2001:db8::1: refused, ::ffff:10.0.0.1:443 2001:db8::1:",
            "from ***: refused, ***:443 ***:",
        ),
        ("ip", "client:2001:db8::1 node:2001:db8::1", "client:*** node:***"),
        ("ip", "::1:2:3:4:5:6:7 1:2:3:4:5:6:7::", "*** ***"),
        (
            "ip",
            "SHA1:aa:bb:cc:dd:ee:ff:00:11:22 1:2:3:4:5:6:7:8:9 std::dead::beef",
            "SHA1:aa:bb:cc:dd:ee:ff:00:11:22 1:2:3:4:5:6:7:8:9 std::dead::beef",
        ),
        (
            "ip",
            "1.2.3.4.5 256.1.1.1 12:30:45 std::vector 00:1b:44:11:3a:b7",
            "1.2.3.4.5 256.1.1.1 12:30:45 std::vector 00:1b:44:11:3a:b7",
        ),
        ("iban", "DE89 3704 0044 0532 0130 00 is paid", "*** is paid"),
        ("iban", "AT61 1904 3002 3457 3201 paid, GB29NWBK60161331926819", "*** paid, ***"),
        ("iban", "ES91 2100 0418 4502 0005 1332 0090", "*** 0090"),
        ("iban", "BE68 5390 0754 7034 BE68 5390 0754 7034", "*** ***"),
        ("iban", "DE89 3704 0044 0532 0130 01", "DE89 3704 0044 0532 0130 01"),
    ] {
        assert_eq!(redacted(&format!("find: {kind}"), text), expected, "{kind}");
    }
}

/// The letter of the escape was a part of the address, and the rest was no JSON. Behind it no card was found.
#[test]
fn raw_json_is_searched_beside_its_escapes_and_stays_json() {
    for (text, expected) in [
        (r#"{"a":"hi\nann@example.org\t4111111111111111"}"#, r#"{"a":"hi\n***\t***"}"#),
        (r#"{"a":"\r10.0.0.1\n2001:db8::1\nDE89370400440532013000"}"#, r#"{"a":"\r***\n***\n***"}"#),
        (r#"{"a":"\u000aann@example.org \u00e9va@example.org"}"#, r#"{"a":"\u000a*** ***"}"#),
        (r#"{"a":"\\nann@example.org"}"#, r#"{"a":"\\***"}"#),
        (r#"{"a":"\n4111-1111-1111-1111-002"}"#, r#"{"a":"\n***-002"}"#),
    ] {
        let found = redacted("find: [email, card, ip, iban]", text);
        assert_eq!(found, expected);
        assert!(serde_json::from_str::<serde_json::Value>(&found).is_ok(), "{found}");
    }
    // A pattern of the user sees the text as it is.
    assert_eq!(redacted(r"{ find: email, pattern: '\\n\w+' }", r"\nabc \na@b.org"), "*** ***@b.org");
}

#[test]
fn the_cover_is_a_text_the_end_or_a_pseudonym() {
    let text = "a 4111-1111-1111-1111 b, id 12";
    assert_eq!(redacted("{ find: card, with: <card> }", text), "a <card> b, id 12");
    assert_eq!(redacted("{ find: card, with: '', keep_last: 4 }", text), "a 1111 b, id 12");
    // Of short data nothing stays.
    assert_eq!(redacted("{ pattern: ['id \\d+', 'éé'], keep_last: 4 }", "id 12 éé"), "*** ***");
    assert_eq!(redacted("{ pattern: 'x[éy]+', keep_last: 2 }", "xyyéé"), "***éé");
    let yaml = "{ find: email, secret: 'long enough' }";
    let (one, other) = (redacted(yaml, "a@b.org c@d.org"), redacted(yaml, "a@b.org"));
    assert!(one.starts_with(&other) && other.len() == 16 && one.len() == 33, "{one} {other}");
}

#[test]
fn all_spellings_have_one_pseudonym() {
    for (kind, spellings) in [
        ("card", ["4111-1111-1111-1111", "4111111111111111", "4111 1111 1111 1111"]),
        ("iban", ["DE89370400440532013000", "DE89 3704 0044 0532 0130 00", "de89370400440532013000"]),
        ("ip", ["2001:db8::1", "2001:DB8::1", "2001:db8:0:0:0:0:0:1"]),
        ("email", ["Ann@example.org", "Ann@Example.org", "Ann@EXAMPLE.ORG"]),
    ] {
        let yaml = format!("{{ find: {kind}, secret: 'long enough' }}");
        let [one, two, three] = spellings.map(|text| redacted(&yaml, text));
        assert!(one.len() == 16 && one == two && two == three, "{one} {two} {three}");
    }
    let yaml = "{ find: email, secret: 'long enough' }";
    assert_ne!(redacted(yaml, "Ann@example.org"), redacted(yaml, "ann@example.org"));
}

#[test]
fn of_data_that_begins_at_one_place_the_longest_is_hidden() {
    for find in ["[card, email]", "[email, card]"] {
        assert_eq!(redacted(&format!("find: {find}"), "4111111111111111@example.org x"), "*** x");
    }
}

#[test]
fn several_fields_are_redacted_and_others_stay() {
    let texts = [("a", "x@y.org"), ("b", "10.0.0.1"), ("c", "x@y.org")];
    let columns = texts.map(|(name, text)| (name, [Some(text)]));
    let batch = with_text(&["p"], &columns.each_ref().map(|(name, texts)| (*name, &texts[..])));
    let given = testing::apply::<Redact>("{ fields: [a, b, missing], find: [email, ip] }", [batch]);
    assert_eq!(given.main(), [serde_json::json!({"a": "***", "b": "***", "c": "x@y.org"})]);
}

#[test]
fn mistakes_are_told_and_the_secret_is_not() {
    let mistakes = |yaml: &str| testing::messages(testing::options::<Redact>(yaml).check());
    assert_eq!(mistakes("{}"), ["Nothing is to be hidden."]);
    assert_eq!(
        mistakes("{ find: ip, secret: long enough, keep_last: 1 }"),
        ["`keep_last` has no effect with a `secret`."]
    );
    let config = testing::options::<Redact>("{ find: ip, secret: 'never shown' }");
    assert!(!format!("{config:?}").contains("never shown"));
}

/// Each number is a candidate, and the whole text may begin a mail address.
#[test]
fn a_long_run_of_candidates_is_read_in_linear_time() {
    let text = "4111111111111112-".repeat(60_000);
    assert!(redacted("{ find: [email, card, ip, iban], pattern: '[0-9-]+x' }", &text) == text);
}

/// Each letter is a match, which is known at the end of the word.
#[test]
fn a_text_in_which_all_matches_would_take_too_long_is_rejected() {
    let yaml = "pattern: '[a-z]+x|a'";
    let given = testing::apply::<Redact>(yaml, [testing::batch(["a".repeat(1 << 20)])]);
    assert_eq!(
        given.reasons(),
        ["its 1048576 bytes would be read more than 128 times to find all matches of `pattern`: limit its \
          repetitions, as in `[a-z]{1,64}`, and write `(?-u:\\b)` for `\\b`"]
    );
    assert_eq!(redacted(yaml, &"a".repeat(1000)), "***".repeat(1000));
}

#[test]
fn a_long_text_may_have_many_matches() {
    for pattern in [r"\d+", r"\b\d+\b", r"id=\S+"] {
        let text = "id=12 ".repeat(200_000);
        let hidden = if pattern.starts_with("id") { "*** " } else { "id=*** " };
        assert_eq!(redacted(&format!("pattern: '{pattern}'"), &text), hidden.repeat(200_000));
    }
}

#[test]
fn patterns_that_are_too_large_together_are_a_mistake() {
    let patterns = [r"'\w{200}x'"; 3].join(", ");
    let mistakes = testing::options::<Redact>(&format!("pattern: [{patterns}]")).check();
    assert_eq!(
        testing::messages(mistakes),
        ["The patterns are too large: compiled, they take more than 10 MiB together."]
    );
}

/// Tries every beginning and end, as the specification of Luhn says it.
fn is_card_by_hand(digits: &str) -> bool {
    let doubled = |digit: u32| if digit > 4 { digit * 2 - 9 } else { digit * 2 };
    let values: Vec<u32> = digits.chars().rev().map(|digit| digit.to_digit(10).unwrap()).collect();
    let odd: u32 = values.iter().step_by(2).sum();
    let even: u32 = values.iter().skip(1).step_by(2).copied().map(doubled).sum();
    (odd + even).is_multiple_of(10)
}

proptest! {
    #[test]
    fn a_number_alone_is_a_card_if_its_check_digit_is_right(digits in "[2-6][0-9]{12,18}") {
        let expected = if is_card_by_hand(&digits) { "***" } else { &digits };
        prop_assert_eq!(redacted("find: card", &digits), expected);
    }

    #[test]
    fn the_text_around_data_stays(before in "[a-z ]{0,9}", after in "( [a-z ]{0,9})?") {
        let text = format!("{before} 192.0.2.1{after}");
        prop_assert_eq!(redacted("{ find: [email, card, ip, iban] }", &text), format!("{before} ***{after}"));
    }
}
