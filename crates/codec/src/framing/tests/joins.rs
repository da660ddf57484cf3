//! Lines of container logs that are joined.

use super::stream::{check_places, options, read};
use super::*;

fn cri() -> Framing {
    Framing { join: Some(Join::Cri), ..Framing::default() }
}

/// The messages of a log: those of the model, with the offsets of their first lines.
fn model(lines: &[String]) -> Vec<(u64, String)> {
    let mut open: [Option<(u64, String)>; 2] = [None, None];
    let (mut messages, mut at) = (Vec::new(), 0);
    for line in lines {
        let mut parts = line.splitn(4, ' ');
        let (time, stream) = (parts.next().unwrap(), parts.next().unwrap_or_default());
        let (tag, text) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let number = match stream {
            "stdout" => Some(0),
            "stderr" => Some(1),
            _ => None,
        };
        match number.filter(|_| !time.is_empty() && matches!(tag, "P" | "F")) {
            None => messages.push((at, line.clone())),
            Some(number) => {
                let message = match open[number].take() {
                    Some((begin, joined)) => (begin, joined + text),
                    None if tag == "F" => (at, line.clone()),
                    None => (at, format!("{time} {stream} F {text}")),
                };
                if tag == "F" { messages.push(message) } else { open[number] = Some(message) }
            }
        }
        at += line.len() as u64 + 1;
    }
    let mut unfinished: Vec<_> = open.into_iter().flatten().collect();
    unfinished.sort();
    messages.extend(unfinished);
    messages
}

fn lines() -> impl Strategy<Value = Vec<String>> {
    let line = prop_oneof![
        8 => "t[0-9] (stdout|stderr) [PPF] [a-c ]{0,5}",
        1 => "t0 std(in|out) [PQ]",
        1 => "[a ]{0,4}",
    ];
    prop::collection::vec(line, 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn the_messages_are_those_of_the_model_and_a_run_resumes_between_any_two(
        lines in lines(),
        chunk in prop_oneof![1..30usize, Just(1 << 20)],
    ) {
        let input: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        let options = options(cri(), "utf-8", 1 << 20);
        let stream = read(&options, StreamPosition::default(), input.as_bytes(), chunk);
        let expected = model(&lines);
        let expected: Vec<(u64, &str)> = expected.iter().map(|(at, text)| (*at, text.as_str())).collect();
        prop_assert_eq!(stream.messages(), expected);
        check_places(&options, input.as_bytes(), &stream, chunk);
    }

    #[test]
    fn what_is_too_long_is_rejected_once_and_a_run_resumes_within_it(
        lines in lines(),
        limit in 8..40u64,
        chunk in 1..30usize,
    ) {
        let input: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        let options = options(cri(), "utf-8", limit);
        let whole = read(&options, StreamPosition::default(), input.as_bytes(), 1 << 20);
        let stream = read(&options, StreamPosition::default(), input.as_bytes(), chunk);
        prop_assert_eq!(&stream.events, &whole.events);
        check_places(&options, input.as_bytes(), &stream, chunk);
    }

    #[test]
    fn unfinished_messages_can_be_written_as_lines(lines in lines(), stop in any::<prop::sample::Index>()) {
        let at = stop.index(lines.len() + 1);
        let text = |lines: &[String]| -> String {
            lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
        };
        let options = options(cri(), "utf-8", 1 << 20);
        let whole = read(&options, StreamPosition::default(), text(&lines).as_bytes(), 1 << 20);
        let mut cutter = options.cutter(StreamPosition::default());
        let first = arrow_buffer::Buffer::from(text(&lines[..at]).as_bytes());
        let count = cutter.next_batch(&first, After::More).positions.len();
        let mut rest = cutter.unfinished_lines();
        rest.extend_from_slice(text(&lines[at..]).as_bytes());
        let rest = read(&options, StreamPosition::default(), &rest, 1 << 20);
        let texts = |events: &[super::stream::Event]| {
            let mut texts: Vec<_> = events.iter().map(|event| event.1.clone()).collect();
            texts.sort();
            texts
        };
        prop_assert_eq!(texts(&rest.events), texts(&whole.events[count..]));
    }
}

#[test]
fn parts_of_two_streams_are_joined_apart() {
    let log =
        b"t1 stdout P one \nt2 stderr F fault\nt3 stdout P two \nno log\nt4 stdout F:x three\nt5 stdout F\n";
    let options = options(cri(), "utf-8", 1 << 20);
    for chunk in [1, 7, 1000] {
        let stream = read(&options, StreamPosition::default(), log, chunk);
        let expected = [
            (17, "t2 stderr F fault"),
            (52, "no log"),
            (0, "t1 stdout F one two three"),
            (79, "t5 stdout F"),
        ];
        assert_eq!(stream.messages(), expected);
    }
}

#[test]
fn a_checkpoint_does_not_pass_the_first_line_of_an_unfinished_message() {
    let log = arrow_buffer::Buffer::from(b"t1 stdout P a\nt2 stderr F b\nt3 stdout P c\n".as_slice());
    let options = options(cri(), "utf-8", 1 << 20);
    let batch = options.cutter(StreamPosition::default()).next_batch(&log, After::More);
    let join = Some(JoinPosition { done: 42, from: [0, 42], skips: [false, false] });
    assert_eq!(batch.next, StreamPosition { offset: 0, join, ..StreamPosition::default() });
    // The message of the other stream is not sent again.
    let stream = read(&options, batch.next, b"t1 stdout P a\nt2 stderr F b\nt3 stdout P c\nt4 stdout F d", 9);
    assert_eq!(stream.messages(), [(0, "t1 stdout F acd")]);
    // A state of an earlier version has no such parts.
    let old: StreamPosition = serde_json::from_str(r#"{ "offset": 3, "skip": "nothing" }"#).unwrap();
    assert_eq!(old, StreamPosition { offset: 3, ..StreamPosition::default() });
    assert_eq!(serde_json::to_string(&old).unwrap(), r#"{"offset":3,"skip":"nothing"}"#);
}

#[test]
fn a_character_that_a_runtime_has_cut_is_joined() {
    let log = b"t1 stdout P \xc3\nt2 stdout F \xa9\nt1 stdout P \x93\nt2 stdout F \xfa\n";
    let stream = read(&options(cri(), "utf-8", 100), StreamPosition::default(), &log[..28], 5);
    assert_eq!(stream.messages(), [(0, "t1 stdout F é")]);
    let stream = read(&options(cri(), "shift_jis", 100), StreamPosition::default(), &log[28..], 5);
    assert_eq!(stream.messages(), [(0, "t1 stdout F 日")]);
}

#[test]
fn too_long_a_message_keeps_its_first_bytes() {
    let log = b"t1 stdout P 12345\nt2 stdout P 67890\nt3 stdout P x\nt4 stdout F y\nt5 stdout F z\n";
    let options = options(cri(), "utf-8", 20);
    let stream = read(&options, StreamPosition::default(), log, 9);
    assert_eq!(
        stream.reasons(),
        [
            "is longer than `max_message_bytes` (20B): it begins at byte 0, and only its first 20 bytes are kept"
        ]
    );
    assert_eq!(stream.events[1..], [(64, Ok("t5 stdout F z".to_owned()))]);
}

#[test]
fn what_does_not_go_with_joins_is_a_mistake() {
    let mistakes = |yaml: &str| {
        thalweg_config::testing::messages(thalweg_config::testing::options::<CutOptions>(yaml).check())
    };
    assert_eq!(mistakes("framing: { join: cri }"), [""; 0]);
    let message = "`join` is for lines: it goes with neither `start_pattern` nor `delimiter`.";
    assert_eq!(mistakes("framing: { join: cri, start_pattern: a }"), [message]);
    assert_eq!(mistakes("framing: { join: cri, delimiter: '|' }"), [message]);
    assert_eq!(
        mistakes("{ charset: utf-16, framing: { join: cri } }"),
        ["`join` finds no container logs in this character set."]
    );
}
