//! Answers of Amazon's services. An input is a status, the headers up to an empty line, and a body.

use thalweg_aws::fuzzing::{queue_answer, service_answer, shard_answer};

use super::store_answers::parts;
use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "amazon_answers",
    components: &["aws_cloudwatch_logs", "aws_kinesis_firehose", "aws_kinesis_streams", "aws_sns", "aws_sqs"],
    longest: 16 << 10,
    words: &[
        "200\n\n",
        "400\n\n",
        "Retry-After: 5\n",
        "{\"FailedRecordCount\":1,\"Records\":[{\"SequenceNumber\":\"1\",\"ShardId\":\"s\"}]}",
        "{\"ErrorCode\":\"ProvisionedThroughputExceededException\",\"ErrorMessage\":\"m\"}",
        "{\"FailedPutCount\":0,\"RequestResponses\":[{\"RecordId\":\"r\"}]}",
        "{\"rejectedLogEventsInfo\":{\"tooOldLogEventEndIndex\":1,\"tooNewLogEventStartIndex\":2}}",
        "{\"Successful\":[{\"Id\":\"0\"}],\"Failed\":[{\"Id\":\"1\",\"SenderFault\":true,\"Code\":\"c\"}]}",
        "<PublishBatchResponse><PublishBatchResult><Successful><member><Id>0</Id></member></Successful>",
        "<Failed><member><Id>1</Id><Code>c</Code><SenderFault>true</SenderFault></member></Failed>",
        "<ErrorResponse><Error><Code>Throttling</Code><Message>m</Message></Error></ErrorResponse>",
        "{\"__type\":\"com.amazonaws.sqs#QueueDoesNotExist\",\"message\":\"m\"}",
        "{\"Records\":[{\"SequenceNumber\":\"1\",\"PartitionKey\":\"k\",\"Data\":\"YQ==\"}],\"MillisBehindLatest\":0}",
        "{\"Messages\":[{\"MessageId\":\"m\",\"ReceiptHandle\":\"h\",\"Body\":\"b\"}]}",
        "\"Attributes\":{\"SentTimestamp\":\"1\"},\"MessageAttributes\":{\"a\":{\"StringValue\":\"v\"}}",
    ],
    run,
};

/// The number of messages of the request.
const MESSAGES: usize = 3;

fn run(bytes: &[u8]) {
    // The client of the first call is not counted.
    service_answer(200, &http::HeaderMap::new(), b"", 0);
    let (status, headers, body) = parts(Input(bytes).0);
    let room = (4 << 20) + 200 * bytes.len();
    let counts = bounded(room, || service_answer(status, &headers, &body, MESSAGES));
    for [delivered, refused, again] in counts.iter().skip(2) {
        // Kinesis and Firehose, the first two, may answer for another number. The sink then sends all again.
        assert_eq!(delivered + refused + again, MESSAGES);
    }
    bounded(room, || (queue_answer(&body), shard_answer(&body)));
}
