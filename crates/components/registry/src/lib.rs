//! The [`registry`] of all sources, transforms and sinks that come with thalweg.
//!
//! The components are in crates of their own, by family. A component depends on the engine's traits, on the
//! record types and on libraries, but not on another component. Code that several components need is in
//! `thalweg-codec` and `thalweg-stream`.

pub use thalweg_files::custom;

use thalweg_config::FormatError;
use thalweg_engine::Registry;

/// Returns all components.
pub fn registry() -> Registry {
    thalweg_config::register_format("sql", check_expression);
    Registry::new()
        .file_sink::<thalweg_files::sinks::directory::DirectoryConfig>()
        .sink::<thalweg_local::sinks::discard::DiscardConfig>()
        .sink::<thalweg_local::sinks::file::FileConfig>()
        .sink::<thalweg_net::sinks::http::HttpConfig>()
        .sink::<thalweg_local::sinks::measure::Measure>()
        .sink::<thalweg_files::sinks::objects::ObjectsSink>()
        .sink::<thalweg_net::sinks::proxy::ProxyConfig>()
        .file_sink::<thalweg_files::transforms::remove::Remove>()
        .sink::<thalweg_net::sinks::socket::SocketConfig>()
        .sink::<thalweg_local::sinks::spool::SpoolSink>()
        .sink::<thalweg_net::sinks::statsd::StatsdConfig>()
        .sink::<thalweg_local::sinks::stdout::StdoutConfig>()
        .sink::<thalweg_net::sinks::websocket::WebsocketConfig>()
        .source::<thalweg_local::sources::file::FileSource>()
        .source::<thalweg_files::sources::files::FilesConfig>()
        .source::<thalweg_local::sources::generate::GenerateConfig>()
        .source::<thalweg_net::sources::http::HttpSource>()
        .source::<thalweg_net::sources::http_upload::HttpUpload>()
        .source::<thalweg_local::sources::internal_logs::InternalLogs>()
        .source::<thalweg_files::sources::objects::ObjectsSource>()
        .source::<thalweg_local::sources::pipe::PipeSource>()
        .source::<thalweg_net::sources::proxy::ProxySource>()
        .source::<thalweg_files::sources::remote_files::RemoteFilesConfig>()
        .source::<thalweg_net::sources::socket::SocketSource>()
        .source::<thalweg_local::sources::spool::SpoolSource>()
        .source::<thalweg_local::sources::stdin::StdinSource>()
        .source::<thalweg_net::sources::syslog::SyslogSource>()
        .transform::<thalweg_transforms::add_id::AddId>()
        .transform::<thalweg_transforms::add_sequence::AddSequence>()
        .transform::<thalweg_transforms::cast::Cast>()
        .file_transform::<thalweg_files::transforms::check_size::CheckSize>()
        .file_transform::<thalweg_files::transforms::check_time::CheckTime>()
        .file_transform::<thalweg_files::transforms::check_type::CheckType>()
        .file_transform::<thalweg_files::transforms::compress::Compress>()
        .file_transform::<thalweg_files::transforms::convert_image::ConvertImage>()
        .transform::<thalweg_transforms::copy::Copy>()
        .file_reader::<thalweg_files::transforms::csv::Csv>()
        .transform::<thalweg_transforms::decode_base64::DecodeBase64>()
        .file_transform::<thalweg_files::transforms::decompress::Decompress>()
        .transform::<thalweg_transforms::dedupe::Dedupe>()
        .transform::<thalweg_transforms::drop::Drop>()
        .transform::<thalweg_stream::encode::EncodeConfig>()
        .transform::<thalweg_transforms::encode_base64::EncodeBase64>()
        .file_transform::<thalweg_files::transforms::exec::Exec>()
        .transform::<thalweg_transforms::extract::Extract>()
        .transform::<thalweg_transforms::filter::Filter>()
        .transform::<thalweg_transforms::flatten::Flatten>()
        .file_transform::<thalweg_files::transforms::forget::Forget>()
        .transform::<thalweg_transforms::format_timestamp::FormatTimestamp>()
        .transform::<thalweg_transforms::geoip::GeoIp>()
        .file_transform::<thalweg_files::transforms::hash::Hash>()
        .transform::<thalweg_transforms::keep::Keep>()
        .transform::<thalweg_transforms::limit::Limit>()
        .file_reader::<thalweg_files::transforms::lines::Lines>()
        .transform::<thalweg_files::transforms::pack::Pack>()
        .transform::<thalweg_transforms::parse_csv::ParseCsv>()
        .transform::<thalweg_transforms::parse_grok::ParseGrok>()
        .transform::<thalweg_transforms::parse_json::ParseJsonConfig>()
        .transform::<thalweg_transforms::parse_logfmt::ParseLogfmt>()
        .transform::<thalweg_transforms::parse_regex::ParseRegex>()
        .transform::<thalweg_transforms::parse_timestamp::ParseTimestamp>()
        .transform::<thalweg_transforms::parse_user_agent::ParseUserAgent>()
        .file_transform::<thalweg_files::transforms::remove::Remove>()
        .transform::<thalweg_transforms::rename::Rename>()
        .file_transform::<thalweg_files::transforms::rename_file::RenameFile>()
        .transform::<thalweg_transforms::replace::Replace>()
        .transform::<thalweg_transforms::route::Route>()
        .transform::<thalweg_transforms::route_by::RouteBy>()
        .transform::<thalweg_transforms::runlength::Runlength>()
        .transform::<thalweg_transforms::sample::Sample>()
        .transform::<thalweg_transforms::set::Set>()
        .file_transform::<thalweg_files::transforms::slice::Slice>()
        .transform::<thalweg_transforms::split::Split>()
        .transform::<thalweg_transforms::split_array::SplitArray>()
        .transform::<thalweg_transforms::split_fields::SplitFields>()
        .transform::<thalweg_transforms::split_pick::SplitPick>()
        .file_transform::<thalweg_files::transforms::strip_metadata::StripMetadata>()
        .transform::<thalweg_transforms::template::Template>()
        .transform::<thalweg_transforms::trim::Trim>()
        .transform::<thalweg_transforms::trim_to_bounds::TrimToBounds>()
        .file_transform::<thalweg_files::transforms::upload::Upload>()
        .file_transform::<thalweg_files::transforms::write::Write>()
}

/// Checks an expression when a configuration is read, so that mistakes are shown with their place.
fn check_expression(sql: &str) -> Result<(), FormatError> {
    thalweg_expression::check(sql).map_err(|error| {
        let mut mistake = FormatError::new(error.message);
        mistake.range = error.range;
        mistake.help = error.help;
        mistake
    })
}
