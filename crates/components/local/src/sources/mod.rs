//! The sources: one file and one line each.

thalweg_engine::components! {
    source exec::ExecSource;
    source file::FileSource;
    source generate::GenerateConfig;
    source internal_logs::InternalLogs;
    source journald::JournaldSource;
    source pipe::PipeSource;
    source spool::SpoolSource;
    source stdin::StdinSource;
}
