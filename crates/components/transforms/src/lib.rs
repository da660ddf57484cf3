//! The transforms of messages: one file each.
//!
//! A transform gets a batch and sends batches to its outputs. It allocates nothing per message, waits for
//! nothing and performs no I/O (`geoip` maps its database into memory when it is built).
//!
//! A transform depends on the engine's traits, on the codec and on libraries; never on another component.
//!
//! See docs/decisions/011-sequential-transforms.md and
//! docs/decisions/051-components-are-families-of-crates.md.

pub mod add_id;
pub mod add_sequence;
mod base64;
pub mod cast;
mod conditions;
pub mod copy;
pub mod decode_base64;
pub mod dedupe;
pub mod drop;
pub mod encode_base64;
mod expansion;
pub mod extract;
pub mod filter;
pub mod flatten;
pub mod format_timestamp;
pub mod geoip;
pub mod keep;
mod labels;
pub mod limit;
mod ordered;
pub mod parse_csv;
pub mod parse_grok;
pub mod parse_json;
pub mod parse_logfmt;
pub mod parse_regex;
pub mod parse_timestamp;
pub mod parse_user_agent;
pub mod rename;
pub mod replace;
pub mod route;
pub mod route_by;
pub mod runlength;
pub mod sample;
mod selection;
pub mod set;
pub mod split;
pub mod split_array;
pub mod split_fields;
pub mod split_pick;
pub mod template;
pub mod trim;
pub mod trim_to_bounds;

use thalweg_codec::payload;

/// The default of an option that names the separator of parts.
fn comma() -> String {
    ",".to_owned()
}

#[cfg(test)]
mod testing;
