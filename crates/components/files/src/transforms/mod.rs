//! The transforms: one file and one line each.

thalweg_engine::components! {
    file_reader avro::Avro;
    file_transform check_size::CheckSize;
    file_transform check_time::CheckTime;
    file_transform check_type::CheckType;
    file_transform compress::Compress;
    #[cfg(feature = "images")]
    file_transform convert_image::ConvertImage;
    file_reader csv::Csv;
    file_transform decompress::Decompress;
    file_transform exec::Exec;
    file_transform forget::Forget;
    file_transform hash::Hash;
    file_reader lines::Lines;
    transform pack::Pack;
    file_sink, file_transform remove::Remove;
    file_transform rename_file::RenameFile;
    file_transform slice::Slice;
    #[cfg(feature = "images")]
    file_transform strip_metadata::StripMetadata;
    #[cfg(feature = "stores")]
    file_transform upload::Upload;
    file_transform write::Write;
}
