//! The sources, transforms and sinks that come with thalweg: a file each, and the [`registry`].
//!
//! A component depends on the engine's traits, on what flows, and on libraries; never on another component.
//! What several need is in `shared`.

pub mod custom;
pub mod shared;
pub mod sinks;
pub mod sources;
pub mod transforms;

use thalweg_config::FormatError;
use thalweg_engine::Registry;

/// All components: a line each.
pub fn registry() -> Registry {
    thalweg_config::register_format("sql", check_expression);
    Registry::new()
        .file_sink::<sinks::directory::DirectoryConfig>()
        .sink::<sinks::discard::DiscardConfig>()
        .sink::<sinks::file::FileConfig>()
        .sink::<sinks::http::HttpConfig>()
        .sink::<sinks::measure::Measure>()
        .sink::<sinks::objects::ObjectsSink>()
        .sink::<sinks::proxy::ProxyConfig>()
        .file_sink::<transforms::remove::Remove>()
        .sink::<sinks::socket::SocketConfig>()
        .sink::<sinks::spool::SpoolSink>()
        .sink::<sinks::statsd::StatsdConfig>()
        .sink::<sinks::stdout::StdoutConfig>()
        .sink::<sinks::websocket::WebsocketConfig>()
        .source::<sources::file::FileSource>()
        .source::<sources::files::FilesConfig>()
        .source::<sources::generate::GenerateConfig>()
        .source::<sources::http::HttpSource>()
        .source::<sources::http_upload::HttpUpload>()
        .source::<sources::internal_logs::InternalLogs>()
        .source::<sources::objects::ObjectsSource>()
        .source::<sources::pipe::PipeSource>()
        .source::<sources::proxy::ProxySource>()
        .source::<sources::remote_files::RemoteFilesConfig>()
        .source::<sources::socket::SocketSource>()
        .source::<sources::spool::SpoolSource>()
        .source::<sources::stdin::StdinSource>()
        .source::<sources::syslog::SyslogSource>()
        .transform::<transforms::add_id::AddId>()
        .transform::<transforms::add_sequence::AddSequence>()
        .transform::<transforms::cast::Cast>()
        .file_transform::<transforms::check_size::CheckSize>()
        .file_transform::<transforms::check_time::CheckTime>()
        .file_transform::<transforms::check_type::CheckType>()
        .file_transform::<transforms::compress::Compress>()
        .file_transform::<transforms::convert_image::ConvertImage>()
        .transform::<transforms::copy::Copy>()
        .file_reader::<transforms::csv::Csv>()
        .transform::<transforms::decode_base64::DecodeBase64>()
        .file_transform::<transforms::decompress::Decompress>()
        .transform::<transforms::dedupe::Dedupe>()
        .transform::<transforms::drop::Drop>()
        .transform::<transforms::encode::EncodeConfig>()
        .transform::<transforms::encode_base64::EncodeBase64>()
        .file_transform::<transforms::exec::Exec>()
        .transform::<transforms::extract::Extract>()
        .transform::<transforms::filter::Filter>()
        .transform::<transforms::flatten::Flatten>()
        .file_transform::<transforms::forget::Forget>()
        .transform::<transforms::format_timestamp::FormatTimestamp>()
        .transform::<transforms::geoip::GeoIp>()
        .file_transform::<transforms::hash::Hash>()
        .transform::<transforms::keep::Keep>()
        .transform::<transforms::limit::Limit>()
        .file_reader::<transforms::lines::Lines>()
        .transform::<transforms::pack::Pack>()
        .transform::<transforms::parse_csv::ParseCsv>()
        .transform::<transforms::parse_grok::ParseGrok>()
        .transform::<transforms::parse_json::ParseJsonConfig>()
        .transform::<transforms::parse_logfmt::ParseLogfmt>()
        .transform::<transforms::parse_regex::ParseRegex>()
        .transform::<transforms::parse_timestamp::ParseTimestamp>()
        .transform::<transforms::parse_user_agent::ParseUserAgent>()
        .file_transform::<transforms::remove::Remove>()
        .transform::<transforms::rename::Rename>()
        .file_transform::<transforms::rename_file::RenameFile>()
        .transform::<transforms::replace::Replace>()
        .transform::<transforms::route::Route>()
        .transform::<transforms::route_by::RouteBy>()
        .transform::<transforms::runlength::Runlength>()
        .transform::<transforms::sample::Sample>()
        .transform::<transforms::set::Set>()
        .file_transform::<transforms::slice::Slice>()
        .transform::<transforms::split::Split>()
        .transform::<transforms::split_array::SplitArray>()
        .transform::<transforms::split_fields::SplitFields>()
        .transform::<transforms::split_pick::SplitPick>()
        .file_transform::<transforms::strip_metadata::StripMetadata>()
        .transform::<transforms::template::Template>()
        .transform::<transforms::trim::Trim>()
        .transform::<transforms::trim_to_bounds::TrimToBounds>()
        .file_transform::<transforms::upload::Upload>()
        .file_transform::<transforms::write::Write>()
}

/// Checks an expression when a configuration is read, so that its mistakes are shown with their place.
fn check_expression(sql: &str) -> Result<(), FormatError> {
    thalweg_expression::check(sql).map_err(|error| {
        let mut mistake = FormatError::new(error.message);
        mistake.range = error.range;
        mistake.help = error.help;
        mistake
    })
}
