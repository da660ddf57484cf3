//! The sources: one folder and one line each.

thalweg_engine::components! {
    source aws_sqs::AwsSqsSource;
}
