//! The list of all targets, one file each.

use crate::Target;

/// Declares the modules of the targets, and lists them.
macro_rules! targets {
    ($($module:ident,)*) => {
        $(mod $module;)*

        /// All targets.
        pub const ALL: &[Target] = &[$($module::TARGET),*];
    };
}

targets! {
    acknowledgements,
    amazon_answers,
    amqp_frames,
    avro,
    base64,
    buffer,
    bulk_answers,
    cache_journal,
    capyfile,
    configuration,
    content_range,
    csv,
    decompress,
    etcd,
    event_stream,
    exposition,
    expression,
    file_template,
    form,
    framing,
    functions,
    gelf,
    geoip,
    gollum,
    gollum_templates,
    grok,
    htpasswd,
    image,
    join,
    journal,
    json_array,
    json_columns,
    json_lookup,
    link_header,
    log_lines,
    logfmt,
    metadata,
    mime,
    mqtt_packets,
    multipart,
    nats_operations,
    otlp,
    patterns,
    pem,
    postgres,
    protobuf,
    raw_request,
    redact,
    redis,
    saved_state,
    sparse,
    split_fields,
    spool,
    state_files,
    store_answers,
    syslog,
    template,
    timestamps,
    user_agent,
    xml,
    yaml,
}
