//! The sinks: one file and one line each. [`sending`] has what they share: options, the check at the
//! beginning, and the way to the requests of `thalweg-net`. [`records`] is what the two services have in
//! common that take records of bytes.

pub(crate) mod records;
mod sending;
#[cfg(test)]
mod tests;
pub(crate) mod texts;

thalweg_engine::components! {
    sink aws_cloudwatch_logs::AwsCloudwatchLogs;
    sink aws_kinesis_firehose::AwsKinesisFirehose;
    sink aws_kinesis_streams::AwsKinesisStreams;
    sink aws_sns::AwsSns;
    sink aws_sqs::AwsSqs;
}
