//! The sources: one folder and one line each. [`stopping`] has how they wait for an answer.

thalweg_engine::components! {
    source aws_kinesis_streams::AwsKinesisStreamsSource;
    source aws_sqs::AwsSqsSource;
}
