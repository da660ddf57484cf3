//! The table of formatters.

use super::Takes::{Flag, List, Number, Plugins, Text};
use super::{OptionRule, PluginKind, Role, idle, used};

const COMMON: &[OptionRule] = &[
    used("Source", Text, "`field`: the payload, or the field `a.b` for `a/b`"),
    used("Target", Text, "`into`"),
    used("ApplyTo", Text, "`field` and `into`, where neither `Source` nor `Target` is given"),
    used("SkipIfEmpty", Flag, "`skip_empty`"),
];

const fn format(name: &'static str, becomes: &'static str, options: &'static [OptionRule]) -> PluginKind {
    PluginKind { name, role: Role::Formatter, becomes, options, shared: &[COMMON], refused: None }
}

const TEXT: &str = "a part of the template of one `encode: { format: text }`";

pub(super) const KINDS: &[PluginKind] = &[
    format(
        "format.Agent",
        "transform `parse_user_agent`",
        &[used("Fields", List, "`fields`"), used("Prefix", Text, "`prefix`")],
    ),
    format(
        "format.Aggregate",
        "its formatters, with its `Source`",
        &[used("Modulators", Plugins, "one after the other")],
    ),
    format(
        "format.Base64Decode",
        "transform `decode_base64`",
        &[
            used("Dictionary", Text, "`alphabet`"),
            used("Base64Dictionary", Text, "the same; gollum's documentation uses this name"),
        ],
    ),
    format(
        "format.Base64Encode",
        "transform `encode_base64`",
        &[
            used("Dictionary", Text, "`alphabet`"),
            used("Base64Dictionary", Text, "the same; gollum's documentation uses this name"),
        ],
    ),
    format(
        "format.Cast",
        "transform `cast`",
        &[used("ToType", Text, "`int` or `float`; `string` and `bytes` are text")],
    ),
    format("format.Clear", "like `format.Delete` (v0.4 and v0.5)", &[]),
    format("format.CollectdToInflux08", "transform `gollum` with `collectd_to_influx` (v0.4 and v0.5)", &[]),
    format("format.CollectdToInflux09", "transform `gollum` with `collectd_to_influx` (v0.4 and v0.5)", &[]),
    format("format.CollectdToInflux10", "transform `gollum` with `collectd_to_influx` (v0.4 and v0.5)", &[]),
    format(
        "format.ConvertTime",
        "transforms `parse_timestamp` and `format_timestamp`",
        &[
            used("FromFormat", Text, "`format` of `parse_timestamp`"),
            used("ToFormat", Text, "`format` of `format_timestamp`"),
            used("From", Text, "the same as `FromFormat`; gollum's documentation uses this name"),
            used("To", Text, "the same as `ToFormat`; gollum's documentation uses this name"),
        ],
    ),
    format(
        "format.Copy",
        "transform `copy`",
        &[used("Mode", Text, "`mode`"), used("Separator", Text, "`separator`")],
    ),
    format("format.Delete", "transform `drop`; for the payload, an empty payload", &[]),
    format(
        "format.Double",
        "one `encode: { format: text }` of both renderings",
        &[
            used("Left", Plugins, "the text before the separator"),
            used("Right", Plugins, "the text after it"),
            used("Separator", Text, "between them"),
            idle("UseLeftStreamID", Flag, "formatters inside of it cannot change the stream here"),
        ],
    ),
    format(
        "format.Envelope",
        TEXT,
        &[
            used("Prefix", Text, "the text before the value"),
            used("Postfix", Text, "the text after the value; a line feed by default"),
        ],
    ),
    format(
        "format.ExtractJSON",
        "transform `gollum` with `extract_json` (v0.4 and v0.5)",
        &[
            used("Field", Text, "`member`"),
            used("TrimValues", Flag, "`trim` (v0.5; v0.4 read it but did not use it)"),
            used("Precision", Number, "`precision`"),
        ],
    ),
    format(
        "format.Flatten",
        "transform `flatten` with `keep: true`",
        &[used("Separator", Text, "`separator`")],
    ),
    format(
        "format.GeoIP",
        "transform `geoip`",
        &[
            used("GeoIPFile", Text, "`database`"),
            used("Fields", List, "`fields`"),
            used("Prefix", Text, "`prefix`"),
        ],
    ),
    format(
        "format.Grok",
        "transform `parse_grok`; a message that matches no pattern goes to `errors`",
        &[
            used("Patterns", List, "`pattern`"),
            used("RemoveEmptyValues", Flag, "`keep_empty`, inverted"),
            used("NamedCapturesOnly", Flag, "`named_only`"),
            used("SkipDefaultPatterns", Flag, "`default_patterns`, inverted"),
        ],
    ),
    format(
        "format.GrokToJSON",
        "transform `parse_grok`, and `encode` of its fields (v0.5)",
        &[
            used("Patterns", List, "`pattern`"),
            used("RemoveEmptyValues", Flag, "`keep_empty`, inverted"),
            used("NamedCapturesOnly", Flag, "`named_only`"),
            used("SkipDefaultPatterns", Flag, "`default_patterns`, inverted"),
        ],
    ),
    format("format.Hostname", TEXT, &[used("Separator", Text, "between the host's name and the rest")]),
    format(
        "format.Identifier",
        "transform `add_id`",
        &[used("Generator", Text, "`kind`: `time`, `hash`, `sequence` (`seq`) or `sequence_hex` (`seqhex`)")],
    ),
    format("format.JSON", "transform `parse_json: { flatten: true }`", &[]),
    format(
        "format.JSONToArray",
        "transform `gollum` with `json_to_array` (v0.5)",
        &[used("Separator", Text, "`separator`"), used("Fields", List, "`fields`")],
    ),
    format(
        "format.JSONToInflux10",
        "transform `gollum` with `json_to_influx` (v0.5)",
        &[
            used("TimeField", Text, "`time`"),
            used("TimeFormat", Text, "`format`"),
            used("Measurement", Text, "`measurement`"),
            used("Ignore", List, "`ignore`"),
            used("Tags", List, "`tags`"),
        ],
    ),
    format(
        "format.MetadataCopy",
        "transform `copy` (v0.5)",
        &[
            used("Key", Text, "`from`"),
            used("Mode", Text, "`mode`"),
            used("Separator", Text, "`separator`"),
            used("CopyToKeys", List, "`into`, one `copy` for each"),
        ],
    ),
    format("format.Move", "transform `rename`", &[]),
    format("format.Override", TEXT, &[used("Value", Text, "the text")]),
    format(
        "format.ProcessJSON",
        "transform `gollum` with `process_json` (v0.4 and v0.5)",
        &[
            used("Directives", List, "`directives`"),
            used("TrimValues", Flag, "`trim_values`"),
            used("GeoIPFile", Text, "`geoip_database`"),
        ],
    ),
    format(
        "format.ProcessTSV",
        "transform `gollum` with `process_tsv` (v0.4 and v0.5)",
        &[
            used("Directives", List, "`directives`"),
            used("Delimiter", Text, "`delimiter`"),
            used("QuotedValues", Flag, "`quoted`"),
        ],
    ),
    format(
        "format.RegExp",
        "transform `extract`",
        &[
            used("Expression", Text, "`pattern`"),
            used("Template", Text, "`template`"),
            used(
                "Posix",
                Flag,
                "the first alternative that matches is taken, not the longest; a remark says where that matters",
            ),
        ],
    ),
    format(
        "format.Replace",
        "transform `replace`",
        &[used("Search", Text, "`search`"), used("ReplaceWith", Text, "`with`")],
    ),
    format(
        "format.Runlength",
        "transform `runlength`",
        &[used("Separator", Text, "`separator`"), used("StoreRunlengthOnly", Flag, "`only`")],
    ),
    format(
        "format.Sequence",
        "transform `add_sequence` and a part of a template",
        &[used("Separator", Text, "after the number")],
    ),
    format(
        "format.Serialize",
        "transform `gollum` with `serialize` (v0.4 and v0.5)",
        &[used("StringEncode", Flag, "`base64` (v0.4)")],
    ),
    format("format.Split", "transform `split_array`", &[used("Delimiter", Text, "`delimiter`")]),
    format(
        "format.SplitPick",
        "transform `split_pick`",
        &[used("Delimiter", Text, "`delimiter`"), used("Index", Number, "`index`")],
    ),
    format(
        "format.SplitToFields",
        "transform `split_fields`",
        &[used("Delimiter", Text, "`delimiter`"), used("Fields", List, "`fields`")],
    ),
    format(
        "format.SplitToJSON",
        "transform `gollum` with `split_to_json` (v0.4 and v0.5)",
        &[
            used("SplitBy", Text, "`separator`"),
            used("Keys", List, "`keys`"),
            used("KeepJSON", Flag, "`keep_json`"),
        ],
    ),
    format(
        "format.StreamName",
        TEXT,
        &[
            used("Separator", Text, "after the stream's name"),
            used("UsePrevious", Flag, "the stream that the messages were in before"),
        ],
    ),
    format("format.StreamRevert", "nothing: gollum changed a name that was not used afterwards", &[]),
    format(
        "format.StreamRoute",
        "transform `route_by` with `prefix_until`",
        &[
            used("Delimiter", Text, "`prefix_until`"),
            used("StreamModulator", Plugins, "transforms on the name before it is looked up"),
        ],
    ),
    format(
        "format.Template",
        "transform `template`",
        &[used("Template", Text, "`template`, in minijinja's notation")],
    ),
    format(
        "format.TemplateJSON",
        "transforms `parse_json` and `template` (v0.4 and v0.5)",
        &[used("Template", Text, "`template`, in minijinja's notation")],
    ),
    format(
        "format.TextToJSON",
        "transform `gollum` with `text_to_json` (v0.5; in v0.4 `format.JSON`)",
        &[
            used("Directives", List, "`directives`"),
            used("StartState", Text, "`start`"),
            used("TimestampRead", Text, "`read_time`"),
            used("UnixTimestampRead", Text, "`read_time`, if there is no `TimestampRead`"),
            used("TimestampWrite", Text, "`write_time`"),
        ],
    ),
    format("format.Timestamp", TEXT, &[used("Timestamp", Text, "`{meta.time:%Y-%m-%d}`, in UTC")]),
    format(
        "format.ToCSV",
        TEXT,
        &[
            used("Keys", List, "the fields"),
            used("Separator", Text, "between them; values are never quoted, as in gollum"),
            used("KeepLastSeparator", Flag, "also after the last one"),
        ],
    ),
    format(
        "format.ToJSON",
        "`encode: { format: json, nested: true }`",
        &[used("Root", Text, "`root`"), used("Ignore", List, "`exclude`")],
    ),
    format(
        "format.Trim",
        "transform `trim`; with the options of v0.5, transform `gollum` with `trim`",
        &[
            used("Characters", Text, "`characters` (v0.6)"),
            used("LeftSeparator", Text, "`left` (v0.5)"),
            used("RightSeparator", Text, "`right` (v0.5)"),
            used("LeftOffset", Number, "`left_offset` (v0.5)"),
            used("RightOffset", Number, "`right_offset` (v0.5)"),
        ],
    ),
    format(
        "format.TrimToBounds",
        "transform `gollum` with `trim_to_bounds`",
        &[
            used("LeftBounds", Text, "`left`"),
            used("RightBounds", Text, "`right`"),
            used("LeftOffset", Number, "`left_offset`"),
            used("RightOffset", Number, "`right_offset`"),
        ],
    ),
];

/// A formatter of v0.4: its type, the option that names the preceding formatter, and its options with their
/// new names.
pub struct Former {
    /// Its type.
    pub name: &'static str,
    /// The option that names the formatter applied before it.
    pub before: &'static str,
    /// Old and new names.
    pub options: &'static [(&'static str, &'static str)],
    /// Defaults that differ from today's: the new name of the option and the value.
    pub defaults: &'static [(&'static str, &'static str)],
}

impl Former {
    /// Its type in v0.5, which is its place in [`KINDS`].
    #[must_use]
    pub fn today(&self) -> &'static str {
        if self.name == "format.JSON" { "format.TextToJSON" } else { self.name }
    }
}

const fn former(
    name: &'static str,
    before: &'static str,
    options: &'static [(&'static str, &'static str)],
    defaults: &'static [(&'static str, &'static str)],
) -> Former {
    Former { name, before, options, defaults }
}

/// The formatters of v0.4. Their options were set in the plugin that used them, so each option's name
/// contains the formatter's.
pub const FORMER: &[Former] = &[
    former("format.Base64Decode", "Base64Formatter", &[("Base64Dictionary", "Dictionary")], &[]),
    former("format.Base64Encode", "Base64DataFormatter", &[("Base64Formatter", "Dictionary")], &[]),
    former("format.Clear", "", &[], &[]),
    former("format.CollectdToInflux08", "CollectdToInfluxFormatter", &[], &[]),
    former("format.CollectdToInflux09", "CollectdToInflux09", &[], &[]),
    former("format.CollectdToInflux10", "CollectdToInflux1009", &[], &[]),
    former(
        "format.Envelope",
        "EnvelopeFormatter",
        &[("EnvelopePrefix", "Prefix"), ("EnvelopePostfix", "Postfix")],
        &[],
    ),
    former(
        "format.ExtractJSON",
        "ExtractJSONdataFormatter",
        &[
            ("ExtractJSONField", "Field"),
            ("ExtractJSONTrimValues", "TrimValues"),
            ("ExtractJSONPrecision", "Precision"),
        ],
        &[("Precision", "0")],
    ),
    former("format.Forward", "", &[], &[]),
    former(
        "format.Hostname",
        "HostnameFormatter",
        &[("HostnameSeparator", "Separator")],
        &[("Separator", " ")],
    ),
    former("format.Identifier", "IdentifierDataFormatter", &[("IdentifierType", "Generator")], &[]),
    former(
        "format.ProcessJSON",
        "ProcessJSONDataFormatter",
        &[
            ("ProcessJSONDirectives", "Directives"),
            ("ProcessJSONTrimValues", "TrimValues"),
            ("ProcessJSONGeoIPFile", "GeoIPFile"),
        ],
        &[],
    ),
    former(
        "format.JSON",
        "",
        &[
            ("JSONDirectives", "Directives"),
            ("JSONStartState", "StartState"),
            ("JSONTimestampRead", "TimestampRead"),
            ("JSONTimestampWrite", "TimestampWrite"),
            ("JSONUnixTimestampRead", "UnixTimestampRead"),
        ],
        &[],
    ),
    former(
        "format.ProcessTSV",
        "ProcessTSVDataFormatter",
        &[
            ("ProcessTSVDirectives", "Directives"),
            ("ProcessTSVDelimiter", "Delimiter"),
            ("ProcessTSVQuotedValues", "QuotedValues"),
        ],
        &[],
    ),
    former("format.Serialize", "SerializeFormatter", &[("SerializeStringEncode", "StringEncode")], &[]),
    former(
        "format.SplitToJSON",
        "SplitToJSONDataFormatter",
        &[("SplitToJSONToken", "SplitBy"), ("SplitToJSONKeys", "Keys"), ("SplitToJSONKeepJSON", "KeepJSON")],
        &[],
    ),
    former("format.TemplateJSON", "TemplateJSONFormatter", &[("TemplateJSONTemplate", "Template")], &[]),
    former("format.Runlength", "RunlengthFormatter", &[("RunlengthSeparator", "Separator")], &[]),
    former("format.Sequence", "SequenceFormatter", &[("SequenceSeparator", "Separator")], &[]),
    former(
        "format.SplitPick",
        "SplitPickFormatter",
        &[("SplitPickIndex", "Index"), ("SplitPickDelimiter", "Delimiter")],
        &[],
    ),
    former(
        "format.StreamName",
        "StreamNameFormatter",
        &[("StreamNameSeparator", "Separator"), ("StreamNameHistory", "UsePrevious")],
        &[("Separator", " ")],
    ),
    former("format.StreamRevert", "StreamRevertFormatter", &[], &[]),
    former("format.StreamRoute", "StreamRouteFormatter", &[("StreamRouteDelimiter", "Delimiter")], &[]),
    former("format.Timestamp", "TimestampFormatter", &[("Timestamp", "Timestamp")], &[]),
];
