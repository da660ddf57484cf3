use super::*;
use crate::ahead::testing::sliced;
use proptest::prelude::*;
use serde_json::json;
use thalweg_engine::testing::{Unpacked, file_of, messages, options, refused, unpack};

async fn csv(yaml: &str, content: &str, batch_bytes: usize) -> Unpacked {
    unpack::<Csv>(yaml, &mut file_of("a.csv", content.as_bytes()), batch_bytes).await
}

#[tokio::test]
async fn the_first_record_names_the_columns_and_the_payload_is_the_record_as_it_stands() {
    let text = "\u{feff}name,age\r\n\"Lovelace, Ada\",36\r\n\"two\nlines\",7\r\n";
    for batch_bytes in [1, 16, 1 << 20] {
        let read = csv("{ types: { age: int } }", text, batch_bytes).await;
        assert_eq!(read.payloads(), ["\"Lovelace, Ada\",36", "\"two\nlines\",7"]);
        assert_eq!(read.positions(), [13, 33]);
        let rows = [json!({"name": "Lovelace, Ada", "age": 36}), json!({"name": "two\nlines", "age": 7})];
        assert_eq!(read.rows(), rows);
    }
}

#[tokio::test]
async fn records_that_do_not_fit_leave_with_their_line_and_the_others_go_on() {
    let text = "a,b\n1,2\n\"x\ny\",3,4\n5,6\n7,z\n8\n\"9,9\n";
    let read = csv("{ types: { b: int } }", text, 8).await;
    assert_eq!(read.rows(), [json!({"a": "1", "b": 2}), json!({"a": "5", "b": 6})]);
    let errors = read.errors();
    let errors: Vec<_> = errors.iter().map(|(text, reason)| (text.as_str(), reason.as_str())).collect();
    assert_eq!(
        errors,
        [
            ("\"x\ny\",3,4", "line 3: has 3 values for 2 columns"),
            ("7,z", "line 6: the field `b` is not a whole number of 64 bits: `z`"),
            ("8", "line 7: has 1 value for 2 columns"),
            ("\"9,9", "line 8: a quote is not closed; reading continues at the next line"),
        ]
    );
    assert!(read.problem.is_none());
}

#[tokio::test]
async fn given_columns_need_no_header_and_one_is_passed_over_if_it_is_said_to_be_there() {
    let read = csv("{ columns: [x], delimiter: ';' }", "a\nb\n", 16).await;
    assert_eq!(read.rows(), [json!({"x": "a"}), json!({"x": "b"})]);
    let read = csv("{ columns: [x], header: true }", "a\nb\n", 16).await;
    assert_eq!(read.rows(), [json!({"x": "b"})]);
}

#[tokio::test]
async fn each_file_has_its_own_header() {
    let context = thalweg_engine::testing::context();
    let mut table = options::<Csv>("{}").build(&context).unwrap();
    for (content, expected) in [
        ("a,b\n1,2\n", json!({"a": "1", "b": "2"})),
        ("a,b\n3,4\n", json!({"a": "3", "b": "4"})),
        ("c\n5\n", json!({"c": "5"})),
    ] {
        let mut file = file_of("x.csv", content.as_bytes());
        let budget = thalweg_record::Budget::new(1 << 20);
        let (mut out, main, _errors) = thalweg_engine::testing::file_output(&budget, 1 << 10, &file);
        table.unpack(&mut file, &mut out).await.unwrap();
        let Some((_, thalweg_engine::testing::Arrived::Messages(batch))) = main.take().await else {
            panic!("nothing")
        };
        assert_eq!(thalweg_engine::testing::rows(batch.fields()), [expected]);
        batch.settle(thalweg_record::Outcome::Delivered);
    }
}

#[tokio::test]
async fn a_file_whose_header_cannot_be_read_is_rejected() {
    for (content, expected) in [
        ("\"a,b\n1,2\n", "the header could not be read: a quote is not closed"),
        (
            "\"a\"b,c\n1,2\n",
            "the header could not be read: a quote is closed before byte 3, but no `,` follows",
        ),
        ("a,b,c\n", "the header could not be read: it has 3 columns, and `max_columns` is 2"),
    ] {
        let read = csv("{ max_columns: 2 }", content, 16).await;
        assert_eq!(read.problem.expect("it is rejected").reason, expected);
        assert!(read.main.is_empty() && read.errors.is_empty());
    }
    assert!(csv("{}", "", 16).await.problem.is_none());
}

#[tokio::test]
async fn a_record_that_is_too_long_costs_one_line() {
    let text = format!("a,b\n{},1\n2,3\n", "x".repeat(100));
    let read = csv("{ max_message_bytes: 50B }", &text, 16).await;
    assert_eq!(read.rows(), [json!({"a": "2", "b": "3"})]);
    assert!(read.errors()[0].1.starts_with("line 2: the record is longer than `max_message_bytes` (50B)"));
}

#[test]
fn options_that_make_no_sense_are_mistakes() {
    let count = |yaml: &str| messages(options::<Csv>(yaml).check());
    assert_eq!(count("{}"), [""; 0]);
    assert_eq!(count("{ header: false }"), ["The columns have no names."]);
    assert_eq!(
        count("{ columns: [a, a], delimiter: '::' }"),
        ["Two columns are called `a`.", "The delimiter must be one ASCII character."]
    );
    assert_eq!(count("{ quote: ',' }"), ["The quote cannot be the delimiter too."]);
    assert_eq!(
        count("{ max_message_bytes: 0B }"),
        ["`max_message_bytes` is 0B, but must be between 1 and 1GiB."]
    );
    assert_eq!(
        refused::<Csv>("{ field: x }"),
        "Unknown option `field`. It accepts `columns`, `header`, `max_columns`, `quote`, `delimiter`, `types`, `null_values`, `trim`, `flexible`, `compression`, `charset` and `max_message_bytes`."
    );
}

proptest! {
    #[test]
    fn any_file_gives_the_same_rows_in_arenas_of_any_size(
        text in "(a,b\n)?[a-c1\",\n\r ]{0,150}",
        limit in prop_oneof![5..30usize, Just(10_000)],
        sizes in (1..40usize, 1..200usize),
    ) {
        let yaml = format!("{{ types: {{ b: int }}, max_message_bytes: {limit}B }}");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let read = |size| {
            let read = runtime.block_on(csv(&yaml, &text, size));
            let problem = read.problem.clone().map(|problem| problem.reason);
            (read.payloads(), read.positions(), read.rows(), read.errors(), problem)
        };
        let whole = read(1 << 20);
        prop_assert_eq!(&read(sizes.0), &whole);
        prop_assert_eq!(&read(sizes.1), &whole);
    }

    #[test]
    fn any_file_that_is_fetched_in_slices_gives_the_same_rows_as_in_one_piece(
        text in "(a,b\n)?([a-c1]{0,3}|\"[a-c1,\n\r]{0,6}\"|[,\n]|\r\n|\"){0,60}",
        limit in prop_oneof![5..30usize, Just(10_000)],
        (slice, at_once) in (1..40usize, 1..5usize),
    ) {
        let yaml = format!("{{ types: {{ b: int }}, max_message_bytes: {limit}B }}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let read = |mut file| {
            let read = runtime.block_on(unpack::<Csv>(&yaml, &mut file, 1 << 20));
            let problem = read.problem.clone().map(|problem| problem.reason);
            (read.payloads(), read.positions(), read.rows(), read.errors(), problem)
        };
        let whole = read(file_of("a.csv", text.as_bytes()));
        prop_assert_eq!(&read(sliced("a.csv", text.as_bytes(), slice, at_once)), &whole);
    }
}

#[tokio::test]
async fn other_character_sets_become_utf_8() {
    let content = b"n\xe4me;b\ncaf\xe9;\"x\n\xfc\"\n";
    let mut file = file_of("a.csv", content);
    let read = unpack::<Csv>("{ charset: latin1, delimiter: ';' }", &mut file, 4).await;
    assert_eq!(read.rows(), [json!({"näme": "café", "b": "x\nü"})]);
    assert_eq!(read.payloads(), ["café;\"x\nü\""]);
}

#[tokio::test]
async fn a_table_in_utf_16_is_read_with_the_offsets_of_the_file() {
    let text = "\u{feff}n\u{0a22};b\r\ncaf\u{e9};\"x\n\u{0a0a}\"\n2;\n";
    for (charset, is_big) in [("utf-16", true), ("utf-16", false), ("utf-16le", false)] {
        let order = |unit: u16| if is_big { unit.to_be_bytes() } else { unit.to_le_bytes() };
        let content: Vec<u8> = text.encode_utf16().flat_map(order).collect();
        for batch_bytes in [1, 7, 1 << 10] {
            let yaml = format!("{{ charset: {charset}, delimiter: ';' }}");
            let read = unpack::<Csv>(&yaml, &mut file_of("a.csv", &content), batch_bytes).await;
            assert!(read.errors().is_empty());
            assert_eq!(
                read.rows(),
                [json!({"n\u{0a22}": "café", "b": "x\n\u{0a0a}"}), json!({"n\u{0a22}": "2", "b": ""})]
            );
            assert_eq!(read.positions(), [14, 36]);
        }
    }
}

#[tokio::test]
async fn half_a_character_at_the_end_is_rejected_with_its_line() {
    let content = b"a\0\n\x001\0\n\x002\0\0";
    let read = unpack::<Csv>("charset: utf-16le", &mut file_of("a.csv", content), 1 << 10).await;
    assert_eq!(read.rows(), [json!({"a": "1"})]);
    assert_eq!(read.errors().len(), 1);
    assert_eq!(
        read.errors()[0].1,
        "line 3: is not UTF-16LE, at byte 3 of the message; reading continues at the next line"
    );
}

proptest! {
    #[test]
    fn a_table_has_the_same_rows_in_any_character_set(
        text in "a\\|b\n([|\n\"]|[12]{1,3}|\"[表ソ1|\n]{0,4}\"|[表ソ能]{1,3}){0,20}",
        charset in prop::sample::select(vec!["utf-16", "utf-16be", "shift_jis", "gbk", "euc-jp"]),
        batch_bytes in 1..60usize,
    ) {
        let encoded: Vec<u8> = match charset {
            "utf-16" => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            "utf-16be" => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
            other => {
                let charset = Charset::try_from(other.to_owned()).unwrap();
                let whole = charset.encoded(text.as_bytes());
                // A character that the set does not have.
                prop_assume!(whole != text.as_bytes() || text.is_ascii());
                whole
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let read = |charset: &str, content: &[u8]| {
            let yaml = format!("{{ delimiter: '|', charset: {charset} }}");
            let read = runtime.block_on(unpack::<Csv>(&yaml, &mut file_of("a.csv", content), batch_bytes));
            let reasons: Vec<String> = read.errors().into_iter().map(|error| error.1).collect();
            (read.payloads(), read.rows(), reasons, read.problem.is_none())
        };
        prop_assert_eq!(read(charset, &encoded), read("utf-8", text.as_bytes()));
    }
}
