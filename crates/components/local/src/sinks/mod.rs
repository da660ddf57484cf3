//! The sinks: one file and one line each.

thalweg_engine::components! {
    sink discard::DiscardConfig;
    sink file::FileConfig;
    sink measure::Measure;
    sink spool::SpoolSink;
    sink stdout::StdoutConfig;
}
