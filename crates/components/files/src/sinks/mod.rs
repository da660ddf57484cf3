//! The sinks: one file and one line each.

thalweg_engine::components! {
    file_sink directory::DirectoryConfig;
    #[cfg(feature = "stores")]
    sink objects::ObjectsSink;
}
