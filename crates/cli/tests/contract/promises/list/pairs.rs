//! The section "Pairs".

use super::{Promise, explains, shown};

pub(super) const PROMISES: &[Promise] = &[
    shown(
        "| `file`, `files`, `objects`, `spool`, `journald`, `generate` | once | at least once |",
        &[
            "cli: every_source_into_every_sink",
            "matrix: file -> file",
            "matrix: files, lines -> directory",
            "matrix: objects, lines -> objects, files",
            "matrix: spool -> file",
            "matrix: generate -> objects",
            "matrix: file -> stdout",
            "matrix: files, lines -> http",
            "matrix: spool -> socket, acknowledge",
            "matrix: generate -> spool",
        ],
    ),
    shown(
        "| `kafka` | once, as long as its partitions stay with this member | at least once |",
        &["source: kafka -> file", "message_sink: file -> kafka"],
    ),
    shown(
        "| `postgres` with `table` and a key | once | at least once; once to `postgres` with `exactly_once` |",
        &[
            "source: postgres, table -> file",
            "message_sink: file -> postgres, exactly once",
            "cli: a_copy_from_table_to_table_that_is_killed_ten_times_has_each_row_once",
        ],
    ),
    shown(
        "| `kafka`, to `kafka` in transactions | - | once, whatever is killed and however partitions change hands |",
        &[
            "source: kafka -> kafka, transactions",
            "source: kafka, broker's protocol -> kafka, transactions",
            "cli: members_that_copy_in_transactions_store_each_record_once",
            "kafka: each_record_is_stored_once_whatever_becomes_of_commits_and_runs",
        ],
    ),
    shown(
        "| `nats` with `stream` | once, as long as no other run uses the consumer | at least once |",
        &["source: nats, stream -> file", "message_sink: file -> nats, stream"],
    ),
    shown(
        "| `amqp` | at least once | at least once |",
        &["source: amqp -> file", "message_sink: file -> amqp"],
    ),
    shown(
        "| `mqtt` with `qos: 1` or `qos: 2` | at least once | at least once |",
        &["source: mqtt -> file", "message_sink: file -> mqtt"],
    ),
    shown(
        "| `redis` with `stream` | once, as long as the consumer comes back before its entries are claimed | at least once |",
        &["source: redis, stream -> file", "message_sink: file -> redis, stream"],
    ),
    shown(
        "| `redis` with `list` | at least once: what was on its way is read again | at least once |",
        &["source: redis, list -> file", "message_sink: file -> redis, list"],
    ),
    shown(
        "| `aws_sqs` | once, as long as the run comes back before its messages are delivered to another one, and the queue does not deliver a message twice | at least once |",
        &["source: aws_sqs -> file", "message_sink: file -> aws_sqs"],
    ),
    shown(
        "| `aws_kinesis_streams` | once | at least once |",
        &["source: aws_kinesis_streams -> file", "message_sink: file -> aws_kinesis_streams"],
    ),
    shown(
        "| `remote_files` | at least once: all that was read is read again | the same |",
        &[
            "cli: every_source_into_every_sink",
            "matrix: remote_files, lines -> file",
            "matrix: remote_files, lines -> http",
        ],
    ),
    shown(
        "| `http`, `http_upload`, `otlp`, `socket` with `acknowledge` | Once, except what a client sends again because its answer was lost. | At least once: a client without an answer sends again what was in flight. |",
        &[
            "cli: every_source_into_every_sink",
            "matrix: http -> file",
            "matrix: http_upload, lines -> directory",
            "matrix: socket, acknowledge -> file, rotate",
            "matrix: http -> spool",
            "matrix: socket, acknowledge -> http",
        ],
    ),
    shown(
        "| `http_client` with `cursor` or without `every`, `sse` with `replays` | once, if the server answers as it did before | at least once |",
        &["source: http_client, cursor -> file", "source: sse, replays -> file"],
    ),
    shown(
        "| `http_client` with `every` and without `cursor`, `sse` without `replays` | What is in the output stays. What the server sends again is there twice. | the same |",
        &[
            "cli: every_source_says_whether_its_messages_come_again",
            "local: what_no_source_sends_again_stays",
        ],
    ),
    shown(
        "| `socket` without `acknowledge`, `syslog`, UDP, `proxy`, `nats` without `stream`, `mqtt` with `qos: 0`, `redis` with `channels`, `websocket_client`, `stdin`, `pipe`, `exec`, `internal_logs` | At most once. What is in the output stays: it is not cut back to a checkpoint, also in a compressed file. | at most once, if the sink does not have to try again |",
        &[
            "cli: messages_of_a_compressed_file_are_kept_when_a_run_is_killed",
            "cli: every_source_into_every_sink",
            "matrix: socket -> file",
            "matrix: syslog -> file",
            "matrix: stdin -> objects",
            "matrix: pipe -> http",
            "matrix: proxy -> proxy",
            "local: what_no_source_sends_again_stays",
        ],
    ),
    shown(
        "A graph may lead to several sinks.",
        &["cli: two_thousand_sinks_get_everything", "message_sink: file -> fan-out of two files"],
    ),
    shown(
        "A checkpoint is taken while nothing moves, so all sinks and the dead letters have the same messages.",
        &[
            "engine: a_checkpoint_has_the_same_messages_in_all_sinks",
            "message_sink: file -> fan-out of two files",
            "cli: a_letter_of_a_killed_run_is_there_once",
        ],
    ),
    explains("A kill can make a run write twice:", "introduces a list"),
    shown(
        "what was in flight when one of several sinks took longer than a minute for it, or a lone sink or a transform longer than five seconds (a slow server, a `limit` with a low rate), also at a stop or a reload before it is delivered;",
        &[
            "engine: what_is_settled_is_saved_after_five_seconds_in_which_something_moved",
            "engine: what_a_slow_sink_delivers_is_saved_although_it_has_never_rest",
        ],
    ),
    shown(
        "what was in flight while a sink failed, or the dead letters were full, for five minutes in which other messages were settled, also at a stop or a reload before it is delivered;",
        &["engine: input_that_goes_another_way_is_saved_after_minutes_in_which_a_sink_delivers_nothing"],
    ),
    explains(
        "the part of a batch that a full Parquet table has, if a transform divides batches before a `failover`;",
        "says what is not promised",
    ),
    explains(
        "what other sinks of the graph wrote since an unfinished Parquet table was begun: a table cannot be continued, and transforms that count may skip numbers in it;",
        "says what is not promised",
    ),
    explains(
        "what clients send again, in each of several sinks, and its dead letters;",
        "says what is not promised",
    ),
    explains(
        "what sources that send again sent since the last checkpoint, if others in the graph cannot.",
        "says what is not promised",
    ),
];
