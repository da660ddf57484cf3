//! The transforms of messages: a file or folder each.
//!
//! A transform gets a batch and sends batches to its outputs. It allocates nothing per message, waits for
//! nothing and performs no I/O. There are exceptions: `geoip` and `parse_protobuf` read a file when they are
//! built, `join` reads its table then and when it changes, and `dedupe` and `sort` keep what does not fit
//! into memory in temporary files. The memory that a transform keeps between batches counts on the budget:
//! see `kept`.
//!
//! A transform depends on the engine's traits, on the codec and on libraries; never on another component.
//!
//! See docs/decisions/011-sequential-transforms.md and
//! docs/decisions/051-components-are-families-of-crates.md.

mod access_log;
mod base64;
mod captures;
mod clock;
mod conditions;
mod entries;
mod expansion;
mod headers;
mod kept;
mod labels;
mod last_values;
mod numbered;
mod objects;
mod on_error;
mod open;
mod pairs;
mod pseudonym;
mod quoted;
mod saved;
mod scalar;
mod selection;
mod sum;
mod text_parser;

thalweg_engine::components! {
    transform add_id::AddId;
    transform add_sequence::AddSequence;
    transform aggregate::Aggregate;
    transform cast::Cast;
    transform changes::Changes;
    transform copy::Copy;
    transform decode_base64::DecodeBase64;
    transform dedupe::Dedupe;
    transform drop::Drop;
    transform encode_base64::EncodeBase64;
    transform extract::Extract;
    transform filter::Filter;
    transform flatten::Flatten;
    transform format_timestamp::FormatTimestamp;
    #[cfg(feature = "geoip")]
    transform geoip::GeoIp;
    transform gollum::Gollum;
    transform hash_text::HashText;
    transform join::Join;
    transform keep::Keep;
    transform limit::Limit;
    transform parse_apache::ParseApache;
    transform parse_avro::ParseAvro;
    transform parse_cef::ParseCef;
    transform parse_cri::ParseCri;
    transform parse_csv::ParseCsv;
    transform parse_elb::ParseElb;
    transform parse_gelf::ParseGelf;
    transform parse_grok::ParseGrok;
    transform parse_journal::ParseJournal;
    transform parse_json::ParseJsonConfig;
    transform parse_key_value::ParseKeyValue;
    transform parse_leef::ParseLeef;
    transform parse_logfmt::ParseLogfmt;
    transform parse_nginx::ParseNginx;
    transform parse_protobuf::ParseProtobuf;
    transform parse_regex::ParseRegex;
    transform parse_syslog::ParseSyslog;
    transform parse_timestamp::ParseTimestamp;
    transform parse_user_agent::ParseUserAgent;
    transform parse_w3c::ParseW3c;
    transform parse_xml::ParseXml;
    transform redact::Redact;
    transform reduce::Reduce;
    transform rename::Rename;
    transform replace::Replace;
    transform route::Route;
    transform route_by::RouteBy;
    transform runlength::Runlength;
    transform sample::Sample;
    transform set::Set;
    transform sort::Sort;
    transform split::Split;
    transform split_array::SplitArray;
    transform split_fields::SplitFields;
    transform split_pick::SplitPick;
    transform template::Template;
    transform trim::Trim;
    transform trim_to_bounds::TrimToBounds;
}

use thalweg_codec::keys::Secret;
use thalweg_codec::payload;

/// The default of an option that names the separator of parts.
fn comma() -> String {
    ",".to_owned()
}

/// Draws the secret under which a transform hashes keys.
fn new_secret() -> Result<Secret, thalweg_engine::Error> {
    Secret::random().map_err(|error| {
        thalweg_engine::Error::permanent("the system has no random numbers").caused_by(error)
    })
}

/// The error of a state that this version cannot read.
fn unusable_state(error: impl std::fmt::Display) -> thalweg_engine::Error {
    thalweg_engine::Error::permanent(format!(
        "its saved state cannot be read: {error}; continue with the version that saved it, or use another state folder"
    ))
}

#[cfg(test)]
mod restarts;
#[cfg(test)]
mod testing;
