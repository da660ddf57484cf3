//! The sources: one file and one line each.

pub mod standard_input;

thalweg_engine::components! {
    source files::FilesConfig;
    #[cfg(feature = "stores")]
    source objects::ObjectsSource;
    #[cfg(feature = "stores")]
    source remote_files::RemoteFilesConfig;
}
